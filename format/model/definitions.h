#pragma once
/// @file definitions.h
/// Texts, kernels and call stacks that are defined once and referred to by number.
///
/// Place:    the engine interns into one; the writer stores new definitions before each event
///           chunk; the reader fills one from the file.
/// Threads:  any, for all operations. Interning locks a mutex briefly and may allocate, so hot
///           paths keep the ids.
/// Errors:   a full table (kMaxDefinitions) gives id 0, "none".

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "format/base/status.h"
#include "format/model/ids.h"

namespace convtrace::format {

inline constexpr uint32_t kMaxDefinitions = 1u << 24;
inline constexpr size_t kMaxStringBytes = 64 * 1024;  ///< longer texts are truncated
inline constexpr size_t kMaxFrames = 256;             ///< deeper stacks lose their outermost frames

struct KernelDef {
  StringId name;    ///< as the driver names it, mangled
  StringId family;  ///< normalised: equal for the same kernel of two builds
};

/// Ids are dense for each kind, start at 1 and are never reused. Texts and lists of frames keep
/// their address as long as the table exists.
class Definitions {
 public:
  Definitions();
  ~Definitions();
  Definitions(const Definitions&) = delete;
  Definitions& operator=(const Definitions&) = delete;

  /// @return the id of `text` (UTF-8, truncated to kMaxStringBytes), the same for equal texts. ""
  /// has an id of its own.
  StringId intern(std::string_view text);
  KernelId intern_kernel(KernelDef kernel);
  /// @param frames one interned text per frame, innermost first; the span is copied.
  StackId intern_stack(std::span<const StringId> frames);

  /// @return the text; "" for none and for unknown ids.
  [[nodiscard]] std::string_view text(StringId id) const;
  [[nodiscard]] KernelDef kernel(KernelId id) const;
  [[nodiscard]] std::span<const StringId> stack(StackId id) const;

  /// @return whether the id is defined here. In a reader, definitions may have been lost.
  [[nodiscard]] bool has(StringId id) const;
  [[nodiscard]] bool has(KernelId id) const;
  [[nodiscard]] bool has(StackId id) const;

  /// @return the smallest defined id above `id`, or none. Iterates over ids with gaps, as a damaged
  /// or hostile file may have them, in time proportional to the defined ones.
  [[nodiscard]] StringId next(StringId id) const;
  [[nodiscard]] KernelId next(KernelId id) const;
  [[nodiscard]] StackId next(StackId id) const;

  struct Counts {
    uint32_t strings = 0, kernels = 0, stacks = 0;
    constexpr bool operator==(const Counts&) const = default;
  };
  /// @return how many of each kind are defined; their ids are 1..count.
  [[nodiscard]] Counts counts() const;

  /// For the reader: defines an id explicitly. A second, different definition of an id is kCorrupt.
  /// Ids may have gaps.
  [[nodiscard]] Status define(StringId id, std::string_view text);
  [[nodiscard]] Status define(KernelId id, KernelDef kernel);
  [[nodiscard]] Status define(StackId id, std::span<const StringId> frames);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::format

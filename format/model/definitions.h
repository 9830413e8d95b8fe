#pragma once
/// @file definitions.h
/// Things named once and then meant by number: texts, kernels, call stacks.
///
/// Place:    the injected side interns into one; the writer stores what is new before each event
///           chunk; the reader fills one from the file.
/// Threads:  all operations may be called from any thread; intern calls take a short mutex and may
///           allocate, so hot paths cache the ids they got.
/// Errors:   a full table (kMaxDefinitions) gives id 0, "none".

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "format/base/status.h"
#include "format/model/ids.h"

namespace convtrace::format {

inline constexpr uint32_t kMaxDefinitions = 1u << 24;
inline constexpr size_t kMaxStringBytes = 64 * 1024;  ///< longer texts are cut on interning
inline constexpr size_t kMaxFrames = 256;             ///< deeper stacks lose their outermost frames

struct KernelDef {
  StringId name;    ///< as the driver names it, mangled
  StringId family;  ///< normalised: equal for the same kernel of two builds
};

/// Ids are dense per kind, start at 1 and are never reused. Texts and frame lists stay valid, at
/// the same address, as long as the table lives.
class Definitions {
 public:
  Definitions();
  ~Definitions();
  Definitions(const Definitions&) = delete;
  Definitions& operator=(const Definitions&) = delete;

  /// @return the id of `text` (UTF-8, cut to kMaxStringBytes), the same for equal texts. "" has an
  /// id of its own.
  StringId intern(std::string_view text);
  KernelId intern_kernel(KernelDef kernel);
  /// @param frames one interned text per frame, innermost first; the span is copied.
  StackId intern_stack(std::span<const StringId> frames);

  /// @return the text, or "" for none and for unknown ids.
  [[nodiscard]] std::string_view text(StringId id) const;
  [[nodiscard]] KernelDef kernel(KernelId id) const;
  [[nodiscard]] std::span<const StringId> stack(StackId id) const;

  /// @return whether the id is defined here (a reader may meet events whose definition was lost).
  [[nodiscard]] bool has(StringId id) const;
  [[nodiscard]] bool has(KernelId id) const;
  [[nodiscard]] bool has(StackId id) const;

  /// @return the smallest defined id above `id`, or none: for walking what a damaged or hostile
  /// file defines with gaps, at the cost of what is defined.
  [[nodiscard]] StringId next(StringId id) const;
  [[nodiscard]] KernelId next(KernelId id) const;
  [[nodiscard]] StackId next(StackId id) const;

  struct Counts {
    uint32_t strings = 0, kernels = 0, stacks = 0;
    constexpr bool operator==(const Counts&) const = default;
  };
  /// How many of each kind are defined now; ids 1..count.
  [[nodiscard]] Counts counts() const;

  /// Reader's side: defines an id explicitly. A second, different definition of an id is kCorrupt;
  /// ids may leave gaps.
  [[nodiscard]] Status define(StringId id, std::string_view text);
  [[nodiscard]] Status define(KernelId id, KernelDef kernel);
  [[nodiscard]] Status define(StackId id, std::span<const StringId> frames);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::format

#pragma once
/// @file golden_traces.h
/// The content of the golden traces, made the same way each time.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace convtrace::test {

struct GoldenTrace {
  const char* name;
  void (*write)(const std::string& path);
};

/// tiny: its bytes are explained one by one in format/FORMAT.md. full: every kind of event, steps
/// that repeat, several chunks. unclosed: what a killed process leaves. values, packed: tensors with
/// their bytes, value_bytes() of them.
inline constexpr size_t kGoldenTraces = 11;
extern const GoldenTrace kGolden[kGoldenTraces];

/// The bytes of the tensors in `values`, simple enough to be computed in another language, too.
[[nodiscard]] std::vector<std::byte> value_bytes(size_t count, uint32_t seed);

/// Files that must be refused, made from the bytes of tiny.
struct MustFail {
  const char* name;
  std::string (*damage)(std::string bytes);
};
inline constexpr size_t kMustFailFiles = 6;
extern const MustFail kMustFail[kMustFailFiles];

/// @return the events of a trace, bit-exact, a line each, and its state; or why it cannot be
/// opened.
[[nodiscard]] std::string reading_of(const std::string& path);

/// @return the output of `convtrace show --json` for it.
[[nodiscard]] std::string json_of(const std::string& path);

}  // namespace convtrace::test

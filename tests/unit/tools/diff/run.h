#pragma once
/// @file run.h
/// Runs made of a few lines, for tests of the diff: a value that can be copied, changed in one
/// place and written as a trace.

#include <cstdint>
#include <string>
#include <vector>

#include "format/model/events.h"
#include "format/model/meta.h"

namespace convtrace::test {

/// One value, launch or finding, with texts instead of ids.
struct Item {
  enum class Kind : uint8_t { kValue, kLaunch, kFinding, kFact, kUnread };
  Kind kind = Kind::kValue;
  uint32_t step = 0;
  format::Phase phase = format::Phase::kForward;
  std::string scope{}, slot{}, op{}, kernel{};
  uint32_t call = 0;
  std::vector<float> values{};
  format::DType dtype = format::DType::kF32;
  format::Capture capture = format::Capture::kStats;
  format::Extent extent = format::Extent::kTensor;
  uint64_t storage = 0;
  uint64_t generation = 0;
  uint32_t version = 0;  ///< of the tensor: writes to it
  uint64_t address = 0;
  uint64_t stream = 0;            ///< of a launch
  std::vector<uint64_t> shape{};  ///< empty: one dimension
  bool sketched = true;           ///< false: as in a trace of before there were sketches
  bool sampled = true;            ///< false: as without raw values
  format::FindingKind finding = format::FindingKind::kFreedUnderOutput;
  format::Level level = format::Level::kError;
  bool suppressed = false;
  std::string message{};
};

inline void scale(Item& item, double factor) {
  for (float& v : item.values) v = static_cast<float>(v * factor);
}

struct Run {
  format::TraceMeta meta;
  std::vector<Item> items;

  Item& add(Item item) { return items.emplace_back(std::move(item)); }
  /// @return the `nth` value with this step, scope and slot; fails the test if there is none.
  Item& at(uint32_t step, const std::string& scope, const std::string& slot, size_t nth = 0);
  void erase(uint32_t step, const std::string& scope, const std::string& slot);
  /// Adds a fact in front of the step's values. `scope` "-": of the program.
  void tell(uint32_t step, const std::string& scope, const std::string& name,
            const std::string& value);
  /// Drops everything from this step on.
  void end_before(uint32_t step);

  /// Writes the run as a trace, a chunk for each step. @param close false: leaves it as a kill
  /// does.
  void write(const std::string& path, bool close = true) const;
};

/// Two layers, `fc1` with a custom op and `fc2`, trained for `steps` steps with everything the
/// default mode records.
Run training(uint32_t steps = 2);

}  // namespace convtrace::test

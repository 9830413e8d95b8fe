#pragma once
/// @file nan_search.h
/// Finds the values that a NaN or an infinity was computed from, and the signs before it.
///
/// Place:       nan_steps.h says which one.
/// Memory:      the last values to be shown, and the hashes of one step.
/// Threads:     one.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"
#include "tools/trace/model/slot.h"

namespace convtrace::tools {

/// The facts about a value that are kept after its event.
struct Seen {
  uint64_t seq = 0;
  uint32_t step = 0;
  format::Place place;
  format::StringId slot, op;
  diff::Role role = diff::Role::kOther;
  format::KernelId kernel;
  format::DType dtype = format::DType::kUnknown;
  format::Stats stats;
  uint64_t address = 0, bytes = 0, generation = 0, poisoned = 0;
  bool freed = false;  ///< it was read out of freed memory (freed_memory.h)

  [[nodiscard]] bool finite() const { return stats.finite == stats.count; }
};

[[nodiscard]] Seen seen_of(const format::TensorStats& event, const format::Definitions& names);

/// An input from which a value was computed.
struct Ingredient {
  format::StringId slot;
  /// The earlier value with equal bytes; nullopt: none was recorded.
  std::optional<Seen> value;
};

enum class Warning : uint8_t { kSaturated, kSubnormal, kNearLimit };

class NanSearch {
 public:
  static constexpr size_t kFrames = 20;

  /// @param birth  the record that is looked for; none: signs alone.
  NanSearch(const format::Definitions& definitions, std::optional<uint64_t> birth)
      : definitions_(definitions), birth_seq_(birth) {}

  /// @return whether this is the birth, after which nothing may be added.
  bool add(const format::TensorStats& event);

  [[nodiscard]] const std::optional<Seen>& birth() const { return birth_; }
  /// The inputs of the birth.
  [[nodiscard]] const std::vector<Ingredient>& ingredients() const { return ingredients_; }
  /// The last values before it without NaN and positive infinities, oldest first.
  [[nodiscard]] const std::deque<Seen>& frames() const { return frames_; }
  /// The first values of each place that hint at trouble, in order.
  [[nodiscard]] const std::vector<std::pair<Warning, Seen>>& warnings() const { return warnings_; }
  /// The last step with values before the step of the birth, if steps without values lie between.
  /// Updates in these steps are unknown.
  [[nodiscard]] std::optional<uint32_t> before_gap() const { return before_gap_; }
  /// Number of values with statistics.
  [[nodiscard]] uint64_t searched() const { return searched_; }

 private:
  /// One call of a module, an op or a kernel, in a phase.
  using Call = std::tuple<uint32_t, uint32_t, format::Phase, uint32_t, uint32_t>;

  void begin_step(uint32_t step);
  void remember(const format::TensorStats& event, const Seen& seen);
  void warn(const Seen& seen);
  void collect_ingredients();
  [[nodiscard]] bool slot_begins(format::StringId slot, std::string_view text) const;
  [[nodiscard]] std::optional<Seen> newest(format::StringId scope, std::string_view slot) const;

  const format::Definitions& definitions_;
  std::optional<uint64_t> birth_seq_;
  uint32_t step_ = format::kNoStep;
  std::unordered_map<uint64_t, Seen> by_hash_;  ///< values of this step, and parameters
  std::map<Call, std::vector<std::pair<format::StringId, uint64_t>>> inputs_;  ///< slots and hashes
  std::map<std::pair<uint32_t, uint32_t>, Seen> newest_;  ///< by scope and slot
  std::deque<Seen> frames_;
  std::map<std::tuple<uint32_t, uint32_t, Warning>, bool> warned_;
  std::vector<std::pair<Warning, Seen>> warnings_;
  std::optional<Seen> birth_;
  std::vector<Ingredient> ingredients_;
  std::optional<uint32_t> before_gap_;
  uint64_t searched_ = 0;
};

}  // namespace convtrace::tools

#pragma once
/// @file nan_search.h
/// Finds the first value of a trace that is not finite, and what is known of the values it was made
/// of.
///
/// What counts: a NaN or a positive infinity. Negative infinities alone are what attention masks
///              are made of.
/// Memory:      the last values shown, and hashes of one step.
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

namespace convtrace::tools {

/// A value as the search keeps it: what outlives its event.
struct Seen {
  uint64_t seq = 0;
  uint32_t step = 0;
  format::Place place;
  format::StringId slot, op;
  format::KernelId kernel;
  format::DType dtype = format::DType::kUnknown;
  format::Stats stats;
  uint64_t address = 0, bytes = 0, generation = 0;

  [[nodiscard]] bool bad() const { return stats.nan != 0 || stats.pos_inf != 0; }
};

[[nodiscard]] Seen seen_of(const format::TensorStats& event);

/// Something that a value was made of.
struct Ingredient {
  format::StringId slot;
  /// The earlier value of equal bytes; nothing: none is recorded.
  std::optional<Seen> value;
};

enum class Warning : uint8_t { kSaturated, kSubnormal, kNearLimit };

class NanSearch {
 public:
  static constexpr size_t kFrames = 20;

  explicit NanSearch(const format::Definitions& definitions) : definitions_(definitions) {}

  /// @return whether this is the first bad value; nothing is to be added behind it.
  bool add(const format::TensorStats& event);

  [[nodiscard]] const std::optional<Seen>& birth() const { return birth_; }
  /// What the first bad value was made of.
  [[nodiscard]] const std::vector<Ingredient>& ingredients() const { return ingredients_; }
  /// The last values before it, oldest first; all finite.
  [[nodiscard]] const std::deque<Seen>& frames() const { return frames_; }
  /// First values of each place that hint at trouble, in order.
  [[nodiscard]] const std::vector<std::pair<Warning, Seen>>& warnings() const { return warnings_; }
  /// The last step with values in front of the birth's, if there are steps without between them:
  /// what parameters became in those is not known.
  [[nodiscard]] std::optional<uint32_t> before_gap() const { return before_gap_; }
  /// Values with statistics.
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
  uint32_t step_ = format::kNoStep;
  std::unordered_map<uint64_t, Seen> by_hash_;  ///< of this step, and parameters
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

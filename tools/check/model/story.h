#pragma once
/// @file story.h
/// The story of a run: what its loss, gradients and updates were by step, and where they left what
/// they had been.
///
/// Threads:  plain values. Names out of a trace are not escaped here.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::check {

enum class Series : uint8_t { kLoss, kNorm, kUpdate };
inline constexpr size_t kSeriesCount = 3;
[[nodiscard]] constexpr std::string_view to_string(Series series) {
  constexpr std::string_view kNames[] = {"loss", "gradient_norm", "update_ratio"};
  return kNames[static_cast<size_t>(series)];
}

/// The numbers of a training step; nullopt: not recorded.
struct StoryStep {
  uint32_t step = 0;
  uint32_t passes = 0;  ///< backward passes with a loss
  /// Loss: the sum over its backward passes. Gradient norm: of all parameters, before clipping.
  /// Update: of all parameters that were updated, against their size before; from sketches, so
  /// about.
  std::optional<double> numbers[kSeriesCount]{};

  [[nodiscard]] const std::optional<double>& of(Series series) const {
    return numbers[static_cast<size_t>(series)];
  }
};

struct StoryEvent {
  enum class Kind : uint8_t {
    kSpike,       ///< it rises at once, and comes back
    kJump,        ///< it rises at once, and does not come back
    kBlowUp,      ///< it rises from step to step, until it is not finite or to the end
    kNotFinite,   ///< it is not finite at once
    kEpochs,      ///< batches come again in the same order
    kShortGroup,  ///< fewer backward passes than in other steps
  };
  Kind kind = Kind::kSpike;
  Series series = Series::kLoss;  ///< the series of a rise
  uint32_t step = 0;
  std::optional<uint32_t> until{};  ///< back in this step; not finite in it; the last of an epoch
  double before = 0, value = 0;     ///< the largest near before it; the largest of the event
  std::optional<std::string> scope{};  ///< the first module whose value shows it; "": the root
  std::string slot{};
  uint64_t count = 0;  ///< how many of the kind; steps of an epoch; backward passes of a group
  std::string text{};  ///< one sentence

  /// @return whether it is one of the first four kinds, a rise of a series.
  [[nodiscard]] bool is_rise() const { return kind < Kind::kEpochs; }
};
[[nodiscard]] constexpr std::string_view to_string(StoryEvent::Kind kind) {
  constexpr std::string_view kNames[] = {"spike",      "jump",   "blow-up",
                                         "not-finite", "epochs", "short-group"};
  return kNames[static_cast<size_t>(kind)];
}

struct Story {
  uint32_t rank = 0;
  std::string path{};
  std::vector<StoryStep> steps{};
  std::vector<StoryEvent> events{};  ///< by step
};

}  // namespace convtrace::check

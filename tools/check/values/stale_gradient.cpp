/// @file stale_gradient.cpp
/// stale-gradient: a gradient has the bits of an earlier step, although its sources changed.
///
/// Proof: a parameter's gradient is made of the gradients of its module's outputs and of the
/// module's inputs, in the calls that the backward pass reached. If all recorded elements of these
/// output gradients differ from the earlier step, equal bits of the whole gradient mean that it was
/// not written. A term that the loss adds from the parameter alone (a penalty) is no explanation,
/// since the parameter has changed.
/// Rows are judged if the weight is a layer's. A row makes one output; its gradient is made of the
/// inputs and one column of the output gradients, of which a record has few elements. If all
/// recorded elements of the inputs differ, too, a row that kept its bits is a fault, provided that
/// its output has a gradient (the output gradients have fewer zeros than half a column has
/// elements), that it has nonzero elements, and that its own weights changed. Rows are compared by
/// the hashed byte ranges that lie within them. In any tensor three nonzero samples of f32 or f64
/// are the same proof. This finds a write that a compiler dropped (pytorch#193061). In either case
/// rounding does not hide the change: given the distance between the output gradients, the chance
/// of equal bits is below 2^-32. The resolution is read from the known elements and not from the
/// type, since values that were rounded to f16 or bf16 may be stored as f32 (compressed
/// all-reduces, layers that compute in 16 bits), and f16 is coarser for small values.
/// Silent: steps in which an output gradient, or an element of it, repeats (the whole batch with
/// L1, hinge or margin losses; a learning rate of 0), or has few magnitudes; inputs of zeros;
/// parameters that did not change or whose change was not recorded; gradients that are zeros, one
/// number or of few magnitudes, not finite, of fewer than four elements, of other types than f64,
/// f32, f16 and bf16. For rows also: inputs that did not change (the whole batch in the first
/// layer), outputs of which many have no gradient (before a ReLU), modules that contain others,
/// biases and weights of norms, transposed convolutions, parts of rows, rows beside a largest
/// element that repeats (a clamp).
/// Not told apart: a loss that is linear in a parameter that its module does not use, or in a
/// tensor of no module, which is judged by the outputs of the root.

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "tools/check/model/checks.h"
#include "tools/check/values/gradient_sources.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr size_t kLeastSamples = 3;
/// Binary logarithms of the chances at which equal bits are no proof any more: where rounding
/// leaves an element as it was in one of eight cases at most, and where it does so in more of them,
/// so that elements may depend on each other.
constexpr double kProofBits = 32, kProofBitsOfMany = 1024;
constexpr double kFewBits = 3;
/// The same for the choices of three samples among eight.
constexpr double kChoiceBits = 6;

/// A value whose parts are compared with those of another step.
struct Parts {
  uint64_t hash = 0;
  format::DType dtype = format::DType::kUnknown;
  std::vector<uint64_t> ranges{};
  std::vector<std::byte> samples{};
};

Parts parts_of(const StepValues& step, const Value& value) {
  const auto ranges = step.ranges_of(value);
  const auto samples = step.samples_of(value);
  return {.hash = value.stats.hash,
          .dtype = value.dtype,
          .ranges = {ranges.begin(), ranges.end()},
          .samples = {samples.begin(), samples.end()}};
}

/// The change of a parameter between two of its gradients.
class Motion {
 public:
  void see(Parts now) {
    if (last_ && last_->hash != now.hash) {
      whole = true;
      ranges.resize(now.ranges.size());
      for (size_t i = 0; i < std::min(now.ranges.size(), last_->ranges.size()); ++i)
        ranges[i] = ranges[i] || now.ranges[i] != last_->ranges[i];
      samples.resize(now.samples.size() / format::element_bytes(now.dtype));
      for (size_t i = 0; i < samples.size(); ++i)
        samples[i] = samples[i] || element_bits(now.samples, now.dtype, i) !=
                                       element_bits(last_->samples, last_->dtype, i);
    }
    last_ = std::move(now);
  }
  /// Forgets all but where the parameter is.
  void restart() {
    whole = false;
    ranges.clear();
    samples.clear();
  }

  bool whole = false;
  std::vector<bool> ranges{}, samples{};

 private:
  std::optional<Parts> last_{};
};

class StaleGradient : public Check {
  /// Fewer may come out alike by chance.
  static constexpr uint64_t kLeastElements = 4;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    const MeasuredValues measured = step.trains ? measured_values(step) : MeasuredValues{};
    std::map<format::StringId, std::shared_ptr<const GradientSources>> sources;
    for (const auto& [parameter, seen] : step.parameters) {
      const Value* const gradient = seen.of_backward();
      const bool flows = step.grad_outputs.contains(parameter.scope);
      if (gradient == nullptr && !before_.contains(parameter) && seen.initial == nullptr) continue;
      Before& before = before_[parameter];
      if (seen.initial != nullptr) before.motion.see(parts_of(step, *seen.initial));
      if (gradient != nullptr && flows) {
        auto& made_of = sources[parameter.scope];
        if (!made_of)
          made_of = std::make_shared<GradientSources>(sources_of(step, measured, parameter.scope));
        Parts now = parts_of(step, *gradient);
        const auto extents = step.extents_of(*gradient);
        if (before.made_of && before.bytes == gradient->bytes)
          compare({step, around, parameter, *gradient, before, now, *made_of, extents});
        before.step = step.number;
        before.bytes = gradient->bytes;
        before.largest = gradient->stats.amax.bits;
        before.gradient = std::move(now);
        before.made_of = made_of;
        before.motion.restart();
      }
      if (!seen.updates.empty()) before.motion.see(parts_of(step, *seen.updates.back()));
    }
  }

 private:
  /// The last gradient of a parameter.
  struct Before {
    uint32_t step = 0;
    uint64_t bytes = 0, largest = 0;
    Parts gradient{};
    std::shared_ptr<const GradientSources> made_of{};
    Motion motion{};
  };
  struct Pair {
    const StepValues& step;
    const Surroundings& around;
    const Parameter& parameter;
    const Value& gradient;
    const Before& before;
    const Parts& now;
    const GradientSources& made_of;
    std::span<const uint64_t> extents;
  };

  void compare(const Pair& pair) {
    const Value& gradient = pair.gradient;
    if (!is_plain_float(gradient.dtype) || !gradient.finite() || gradient.zero() ||
        gradient.constant() || gradient.stats.amax.bits == gradient.stats.amin_nonzero.bits)
      return;
    if (gradient.stats.count < kLeastElements || sizes(pair.now) < kLeastSamples) return;
    const GradientSources& then = *pair.before.made_of;
    if (!pair.before.motion.whole || !pair.made_of.known || pair.made_of.takes_zeros() ||
        !all_changed(pair.made_of.gradients, then.gradients))
      return;
    look("stale-gradient");
    if (pair.before.gradient.hash == pair.now.hash) {
      if (is_proven(pair, static_cast<double>(gradient.stats.positive + gradient.stats.negative)))
        tell(pair, "");
    } else if (rows_are_made_anew(pair, then)) {
      const std::string rows = equal_rows(pair), samples = rows.empty() ? equal_samples(pair) : "";
      if (!rows.empty() || !samples.empty()) tell(pair, rows + samples);
    }
  }

  /// @return whether so many unchanged elements cannot be explained by rounding.
  static bool is_proven(const Pair& pair, double elements, double choices = 0) {
    double terms = 0, unit = roundoff(pair.gradient, pair.now.samples);
    for (const Source& output : pair.made_of.gradients) {
      terms += static_cast<double>(output.value.stats.count);
      unit = std::max(unit, roundoff(output.value, output.samples));
    }
    if (!pair.extents.empty()) terms /= static_cast<double>(std::max<uint64_t>(pair.extents[0], 1));
    const double distance =
        nearest_distance(pair.made_of.gradients, pair.before.made_of->gradients);
    const double bits = std::log2(distance / (unit * std::sqrt(std::max(terms, 1.0))));
    return elements * bits - choices >= (bits >= kFewBits ? kProofBits : kProofBitsOfMany);
  }

  /// @return whether the weight is a layer's, and each row of its gradient must change.
  static bool rows_are_made_anew(const Pair& pair, const GradientSources& then) {
    const auto& extents = pair.extents;
    const Surroundings& around = pair.around;
    const size_t rank = extents.size();
    if (rank < 2 || extents[0] == 0 || around.facts.contains_others(pair.parameter.scope) ||
        around.facts.class_of(pair.parameter.scope).starts_with("ConvTranspose"))
      return false;
    for (const Source& output : pair.made_of.gradients) {
      const format::Stats& stats = output.value.stats;
      if (channels_of(output.extents, rank).count != extents[0] ||
          stats.pos_zero + stats.neg_zero >=
              stats.count / extents[0] / 2 + stats.count / extents[0] % 2)
        return false;
    }
    const auto mixed = [&](const Source& input) {
      return channels_of(input.extents, rank).count == extents[1];
    };
    return std::ranges::all_of(pair.made_of.inputs, mixed) &&
           all_changed(pair.made_of.inputs, then.inputs);
  }

  /// Finds rows all of whose byte ranges are unchanged. @return "" if there are none.
  static std::string equal_rows(const Pair& pair) {
    const auto &now = pair.now.ranges, &before = pair.before.gradient.ranges;
    const auto& moved = pair.before.motion.ranges;
    const uint64_t bytes = pair.gradient.bytes, row = bytes / pair.extents[0];
    const uint64_t zeros = pair.gradient.stats.pos_zero + pair.gradient.stats.neg_zero;
    if (now.empty() || now.size() != before.size() || now.size() != moved.size() || row == 0 ||
        pair.before.largest == pair.gradient.stats.amax.bits ||
        zeros >= pair.gradient.stats.count / pair.extents[0])
      return "";
    const uint64_t range = std::bit_ceil((bytes + now.size() - 1) / now.size());
    uint64_t rows = 0, first = 0, begin = 0;
    for (size_t i = 0; i <= now.size(); ++i) {
      if (i < now.size() && now[i] == before[i] && moved[i] && std::ranges::count(now, now[i]) == 1)
        continue;
      const uint64_t end = std::min(i * range, bytes);
      const uint64_t from = (begin + row - 1) / row, to = end / row;
      if (to > from) first = rows == 0 ? from : first;
      rows += to > from ? to - from : 0;
      begin = std::min((i + 1) * range, bytes);
    }
    const auto elements = static_cast<double>(rows * (pair.gradient.stats.count / pair.extents[0]));
    if (rows == 0 || !is_proven(pair, elements)) return "";
    return " in " + std::to_string(rows) + " of its " + std::to_string(pair.extents[0]) +
           " rows, from row " + std::to_string(first) + " on";
  }

  /// Samples at inputs of which another element is known. @return "" if there are too few.
  static std::string equal_samples(const Pair& pair) {
    const format::DType dtype = pair.gradient.dtype;
    const bool wide = dtype == format::DType::kF64 || dtype == format::DType::kF32;
    const auto &now = pair.now.samples, &before = pair.before.gradient.samples;
    const auto& moved = pair.before.motion.samples;
    const size_t count = now.size() / format::element_bytes(dtype);
    if (!wide || now.size() != before.size() || moved.size() != count) return "";
    const std::set<uint64_t> known = changed_inputs(pair);
    const Channels of_weight = channels_of(pair.extents, pair.extents.size());
    std::set<uint64_t> equal;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t size = magnitude_bits(now, dtype, i);
      const uint64_t input = of_weight.of(sample_position(pair.gradient.stats.count, i));
      if (size != 0 && moved[i] && known.contains(input) &&
          element_bits(now, dtype, i) == element_bits(before, dtype, i))
        equal.insert(size);
    }
    if (equal.size() < kLeastSamples ||
        !is_proven(pair, static_cast<double>(equal.size()), kChoiceBits))
      return "";
    return " in " + std::to_string(equal.size()) + " of " + std::to_string(count) + " samples";
  }

  /// @return the layer's input channels with a known nonzero element.
  static std::set<uint64_t> changed_inputs(const Pair& pair) {
    std::set<uint64_t> known;
    for (const Source& input : pair.made_of.inputs) {
      const format::DType dtype = input.value.dtype;
      const Channels channels = channels_of(input.extents, pair.extents.size());
      for (size_t i = 0; i < input.samples.size() / format::element_bytes(dtype); ++i)
        if (magnitude_bits(input.samples, dtype, i) != 0)
          known.insert(channels.of(sample_position(input.value.stats.count, i)));
    }
    return known;
  }

  /// @return the number of unlike sizes among the samples; where there are none, enough.
  static size_t sizes(const Parts& parts) {
    if (parts.samples.empty()) return kLeastSamples;
    std::set<uint64_t> unlike;
    for (size_t i = 0; i < parts.samples.size() / format::element_bytes(parts.dtype); ++i)
      unlike.insert(magnitude_bits(parts.samples, parts.dtype, i));
    return unlike.size();
  }

  void tell(const Pair& pair, const std::string& where) {
    Finding finding =
        about("stale-gradient", Severity::kError, pair.around, pair.step.number, pair.gradient);
    const std::string then = std::to_string(pair.before.step);
    finding.text = "The gradient of " + parameter_name(pair.around.names, pair.parameter) +
                   " has the bits of step " + then + where +
                   ", although all that it is made of changed.";
    finding.evidence = {"gradient: " + numbers_of(pair.gradient),
                        "gradient in step " + then + ": " +
                            (where.empty() ? "the same hash" : "the same bits" + where),
                        tools::counted(pair.made_of.gradients.size(), "gradient") +
                            " of the module's outputs: no hash and no known element as in step " +
                            then,
                        "the parameter has moved since"};
    finding.cause =
        "a write that a compiler dropped, a custom backward that returns a buffer it did not "
        "fill, a cached gradient";
    finding.next =
        "run it without torch.compile, or with CONVTRACE_POISON=1, and compare the two with "
        "convtrace-diff";
    report(std::move(finding));
  }

  std::map<Parameter, Before> before_;
};

}  // namespace

std::unique_ptr<Check> make_stale_gradient() { return std::make_unique<StaleGradient>(); }

}  // namespace convtrace::check

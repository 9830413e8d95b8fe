/// @file stale_gradient.cpp
/// stale-gradient: a gradient has the bits of the step before, although what it is made of differs.
///
/// Why it is a fault: a weight's gradient is made of the module's input and of the gradient of its
/// output. If both differ, equal bits mean that nobody wrote it. The same of one of its 256 ranges
/// (pytorch#193061: the compiler dropped a write through a view), and of three samples of 32 bits
/// in a tensor that is too small for ranges.
/// Silent: gradients of zeros, of one number (a bias under a mean) or of few (signs), gradients that
/// are not finite, modules without a recorded gradient of their output, ranges whose content occurs
/// twice in the tensor (rows of zeros).
/// Not told apart: an L1 penalty on weights that no input reaches is constant, too.

#include <algorithm>
#include <set>

#include "tools/check/values/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr size_t kLeastSamples = 3;

class StaleGradient : public Check {
  /// Fewer may come out alike by chance.
  static constexpr uint64_t kLeastElements = 4;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const auto& [parameter, seen] : step.parameters) {
      const Value* const gradient = seen.of_backward();
      const auto flow = step.grad_outputs.find(parameter.scope);
      if (gradient == nullptr || flow == step.grad_outputs.end()) continue;
      Before now{.step = step.number,
                 .hash = gradient->stats.hash,
                 .bytes = gradient->bytes,
                 .flow = signature(flow->second)};
      const auto ranges = step.ranges_of(*gradient);
      now.ranges.assign(ranges.begin(), ranges.end());
      const auto samples = step.samples_of(*gradient);
      now.samples.assign(samples.begin(), samples.end());
      Before& before = before_[parameter];
      if (before.flow != 0 && before.flow != now.flow && before.bytes == now.bytes)
        compare(step, around, parameter, *gradient, before, now);
      before = std::move(now);
    }
  }

 private:
  struct Before {
    uint32_t step = 0;
    uint64_t hash = 0, bytes = 0, flow = 0;
    std::vector<uint64_t> ranges{};
    std::vector<std::byte> samples{};
  };

  void compare(const StepValues& step, const Surroundings& around, const Parameter& parameter,
               const Value& gradient, const Before& before, const Before& now) {
    if (!gradient.finite() || gradient.zero() || gradient.constant()) return;
    if (gradient.stats.count < kLeastElements ||
        distinct(now.samples, gradient.dtype) < kLeastSamples)
      return;
    look("stale-gradient");
    if (before.hash == now.hash) return tell(step, around, parameter, gradient, before, "");
    size_t equal = 0, first = 0;
    for (size_t i = 0; i < std::min(now.ranges.size(), before.ranges.size()); ++i) {
      if (now.ranges[i] != before.ranges[i] || occurs_again(now.ranges, i)) continue;
      if (equal++ == 0) first = i;
    }
    if (equal == 0) return compare_samples(step, around, parameter, gradient, before, now);
    tell(step, around, parameter, gradient, before,
         " in " + std::to_string(equal) + " of " + std::to_string(now.ranges.size()) +
             " ranges, the first at " +
             tools::percent_text(static_cast<double>(first) /
                                 static_cast<double>(now.ranges.size())) +
             " of its bytes");
  }

  void compare_samples(const StepValues& step, const Surroundings& around,
                       const Parameter& parameter, const Value& gradient, const Before& before,
                       const Before& now) {
    const size_t size = gradient.dtype == format::DType::kF64 ? 8 : 4;
    const bool wide = size == 8 || gradient.dtype == format::DType::kF32;
    if (!wide || now.samples.size() != before.samples.size()) return;
    std::set<std::vector<std::byte>> equal;
    for (size_t at = 0; at + size <= now.samples.size(); at += size) {
      const std::vector<std::byte> sample(now.samples.begin() + static_cast<ptrdiff_t>(at),
                                          now.samples.begin() + static_cast<ptrdiff_t>(at + size));
      const bool same = std::equal(sample.begin(), sample.end(),
                                   before.samples.begin() + static_cast<ptrdiff_t>(at));
      // Zeros of either sign are alike in any step.
      const auto no_bit = [](std::byte b) { return b == std::byte{}; };
      const bool zero = std::all_of(sample.begin(), sample.end() - 1, no_bit) &&
                        no_bit(sample.back() & std::byte{0x7F});
      if (same && !zero) equal.insert(sample);
    }
    if (equal.size() < kLeastSamples) return;
    tell(step, around, parameter, gradient, before,
         " in " + std::to_string(equal.size()) + " of " +
             std::to_string(now.samples.size() / size) + " samples");
  }

  /// @return the number of unlike samples; where there are none, enough.
  static size_t distinct(const std::vector<std::byte>& samples, format::DType dtype) {
    const size_t size = format::element_bytes(dtype);
    if (samples.empty() || size == 0) return kLeastSamples;
    std::set<std::vector<std::byte>> unlike;
    for (size_t at = 0; at + size <= samples.size(); at += size)
      unlike.emplace(samples.begin() + static_cast<ptrdiff_t>(at),
                     samples.begin() + static_cast<ptrdiff_t>(at + size));
    return unlike.size();
  }

  static bool occurs_again(const std::vector<uint64_t>& ranges, size_t i) {
    return std::ranges::count(ranges, ranges[i]) > 1;
  }

  void tell(const StepValues& step, const Surroundings& around, const Parameter& parameter,
            const Value& gradient, const Before& before, const std::string& where) {
    Finding finding = about("stale-gradient", Severity::kError, around, step.number, gradient);
    const std::string name = parameter_name(around.names, parameter);
    const std::string then = std::to_string(before.step);
    finding.text = "The gradient of " + name + " has the bits of step " + then + where +
                   ", although the gradient of the module's output is another.";
    finding.evidence = {"gradient: " + numbers_of(gradient),
                        "gradient in step " + then + ": " +
                            (where.empty() ? "the same hash" : "the same bits" + where),
                        "gradients of the module's outputs: other hashes than in step " + then};
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

/// @file kept_gradient.cpp
/// stale-gradient: the result of a custom op's backward has the bits of earlier steps, whole or in
/// part, in memory that the op keeps.
///
/// Why it is a fault: the op's given gradients have changed, and its result is made of them. Bits
/// that stay in the same memory were not written.
/// Judged: in two consecutive steps. The whole gradient is judged by its hash. A gradient with the
/// shape of the op's only given gradient is judged by samples, too: three or more, not 0 and of
/// unlike magnitudes, that stayed where the given gradient changed. Samples of the given gradient
/// are those of the module whose output it belongs to.
/// Silent: memory that is new in each call; zeros, one number, few sizes (signs); types of 16 bits
/// and less, whose rounding hides a small change; given gradients that repeat.
/// Not told: a part without a sample; results that are added to a buffer which was not cleared.
/// Not told apart: an op that returns constants that it keeps in a part of its gradient.

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "format/model/dtype.h"
#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

constexpr size_t kLeastSamples = 3, kLeastElements = 16;
constexpr uint32_t kLeastSteps = 2;

/// The last records of a result of an op's backward.
struct Seen {
  uint64_t storage = 0, offset = 0, hash = 0;
  std::set<uint64_t> taken{};                  ///< hashes of the gradients that the op was given
  std::vector<uint64_t> samples{}, sources{};  ///< bits of the result, and of the given gradient
  uint32_t whole = 0;                          ///< consecutive steps in which all bits stayed
  std::vector<uint32_t> unchanged{};           ///< the same for each sample
};

/// @return whether equal bits prove that the value was not written: in other types rounding hides a
/// small change.
bool tells_writes(const Value& value) {
  const bool wide = value.dtype == format::DType::kF32 || value.dtype == format::DType::kF64;
  return wide && value.finite() && value.stats.count >= kLeastElements && !value.constant() &&
         value.stats.amax.as_f64() != value.stats.amin_nonzero.as_f64();
}

std::vector<uint64_t> bits_of(const StepValues& step, const Value& value) {
  const std::span<const std::byte> samples = step.samples_of(value);
  const size_t width = format::element_bytes(value.dtype);
  std::vector<uint64_t> bits(samples.size() / width);
  for (size_t i = 0; i < bits.size(); ++i) std::memcpy(&bits[i], samples.data() + i * width, width);
  return bits;
}

/// The record of a module that has the samples of a gradient that an op was given.
const Value* with_samples(const StepValues& step, const Value& taken) {
  const auto of_module = step.grad_outputs.find(taken.place.scope);
  if (of_module == step.grad_outputs.end()) return nullptr;
  for (const Value* value : of_module->second)
    if (value->stats.hash == taken.stats.hash && value->sample_bytes != 0) return value;
  return nullptr;
}

Seen seen_of(const StepValues& step, const Value& value, const std::vector<const Value*>& taken) {
  Seen seen{.storage = value.storage, .offset = value.offset, .hash = value.stats.hash};
  for (const Value* one : taken) seen.taken.insert(one->stats.hash);
  const Value* const source = taken.size() == 1 ? with_samples(step, *taken[0]) : nullptr;
  if (source == nullptr || source->shape != value.shape || source->dtype != value.dtype)
    return seen;
  seen.samples = bits_of(step, value);
  seen.sources = bits_of(step, *source);
  if (seen.samples.size() != seen.sources.size()) seen.samples.clear();  // made up
  return seen;
}

class KeptGradient : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    std::map<Key, Seen> now;
    std::map<Key, uint32_t> calls;
    std::map<CallKey, std::vector<const Value*>> taken;
    for (const Value& value : step.values) {
      if (!value.op || value.kernel || value.place.phase != format::Phase::kBackward) continue;
      const CallKey call{value.place.scope, value.op, value.place.phase, value.place.call};
      std::vector<const Value*>& of_call = taken[call];
      if (value.role == Role::kGradOutput) {
        const auto same = [&value](const Value* one) { return one->slot == value.slot; };
        if (std::ranges::any_of(of_call, same)) of_call.clear();  // the op's next call
        of_call.push_back(&value);
      }
      if (value.role != Role::kGradInput || !tells_writes(value)) continue;
      Seen seen = seen_of(step, value, of_call);
      const Key key{call, value.slot, calls[{call, value.slot, 0}]++};
      const auto before = before_.find(key);
      if (before != before_.end()) compare(step, around, value, before->second, seen);
      now[key] = std::move(seen);
    }
    before_ = std::move(now);
  }

 private:
  using Key = std::tuple<CallKey, format::StringId, uint32_t>;

  void compare(const StepValues& step, const Surroundings& around, const Value& value,
               const Seen& before, Seen& now) {
    if (before.storage != now.storage || before.offset != now.offset || now.storage == 0) return;
    const auto came_before = [&before](uint64_t hash) { return before.taken.contains(hash); };
    if (now.taken.empty() || std::ranges::any_of(now.taken, came_before)) return;
    look("stale-gradient");
    now.whole = before.hash == now.hash ? before.whole + 1 : 0;
    if (now.whole >= kLeastSteps) return tell(step, around, value, "");
    if (before.samples.size() != now.samples.size()) return;
    now.unchanged.resize(now.samples.size());
    const size_t width = format::element_bytes(value.dtype);
    std::set<uint64_t> sizes;
    for (size_t i = 0; i < now.samples.size(); ++i) {
      const bool stale = before.samples[i] == now.samples[i] && before.sources[i] != now.sources[i];
      now.unchanged[i] = stale ? (i < before.unchanged.size() ? before.unchanged[i] : 0) + 1 : 0;
      const uint64_t size = now.samples[i] & ~(uint64_t{1} << (8 * width - 1));
      if (now.unchanged[i] >= kLeastSteps && size != 0) sizes.insert(size);
    }
    if (sizes.size() >= kLeastSamples)
      tell(step, around, value,
           " in " + std::to_string(sizes.size()) + " of " + std::to_string(now.samples.size()) +
               " samples");
  }

  void tell(const StepValues& step, const Surroundings& around, const Value& value,
            const std::string& part) {
    if (!told_.insert({value.place.scope, value.op}).second) return;
    Finding finding = about("stale-gradient", Severity::kWarning, around, step.number, value);
    finding.text = "What op " + std::string(around.names.text(value.op)) + " returns as " +
                   std::string(around.names.text(value.slot)) + " has the bits of the step before" +
                   part + ", although all that it was given changed.";
    finding.evidence = {"the same memory and the same bits in " + std::to_string(kLeastSteps + 1) +
                        " steps: " + numbers_of(value)};
    finding.cause = "a buffer that the backward keeps, and writes only once or only in part";
    finding.next = "look at what writes that buffer in each call, and at the shapes that it is for";
    report(std::move(finding));
  }

  std::map<Key, Seen> before_;
  std::set<std::pair<format::StringId, format::StringId>> told_;  ///< scope and op
};

}  // namespace

std::unique_ptr<Check> make_kept_gradient() { return std::make_unique<KeptGradient>(); }

}  // namespace convtrace::check

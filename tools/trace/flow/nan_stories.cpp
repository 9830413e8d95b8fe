#include "tools/trace/flow/nan_stories.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "tools/trace/model/not_finite.h"

namespace convtrace::diff {
namespace {

using format::Definitions;
using format::Phase;
using Kind = NanStory::Kind;

/// The call of a module as a stretch of the step's values.
struct Stretch {
  std::string_view scope;
  Phase phase = Phase::kForward;
  size_t begin = SIZE_MAX, end = 0;
  bool finite = true;  ///< all its outputs are known to be

  [[nodiscard]] bool contains(size_t i, const Passed& value, const Definitions& names) const {
    const std::string_view inner = names.text(value.place.scope);
    const bool inside = is_inside(inner, scope) || (inner == scope && value.op);
    return inside && phase == value.place.phase && begin < i && i < end;
  }
};

class Stretches {
 public:
  Stretches(std::span<const Passed> step, const NanStories& stories, const Definitions& names)
      : step_(step), names_(names) {
    std::map<std::tuple<format::StringId, Phase, uint32_t>, Stretch> calls;
    for (size_t i = 0; i < step.size(); ++i) {
      const Passed& one = step[i];
      const bool is_output = one.kind == Role::kOutput;
      if (!one.of_module() || (!is_output && one.kind != Role::kInput)) continue;
      Stretch& call = calls[{one.place.scope, call_phase(one), one.place.call}];
      call.scope = names.text(one.place.scope);
      call.phase = call_phase(one);
      if (is_output) {
        call.end = i;
        call.finite &= one.measured && !stories.is_bad(one);
      } else {
        call.begin = std::min(call.begin, i);
      }
    }
    for (const auto& [key, call] : calls)
      if (call.end != 0) all_.push_back(call);
  }

  /// @return the innermost.
  [[nodiscard]] const Stretch* finite_around(size_t i) const {
    const Stretch* found = nullptr;
    for (const Stretch& one : all_) {
      if (!one.finite || !one.contains(i, step_[i], names_)) continue;
      if (found == nullptr || one.begin > found->begin) found = &one;
    }
    return found;
  }
  [[nodiscard]] bool any_around(size_t i) const {
    return std::ranges::any_of(
        all_, [&](const Stretch& one) { return one.contains(i, step_[i], names_); });
  }

 private:
  std::span<const Passed> step_;
  const Definitions& names_;
  std::vector<Stretch> all_;
};

/// @return whether a loss times its scale is infinite although the loss itself is of a usual size.
bool overflows(const Passed& value, double loss_scale) {
  constexpr double kUsual = 1024;
  return value.kind == Role::kLoss && value.stats.nan == 0 &&
         loss_scale * kUsual > format::largest_finite(value.dtype);
}

/// @return whether a value that is not finite makes the step worthless.
bool counts(size_t i, const Passed& value, const Stretches& calls) {
  switch (value.kind) {
    case Role::kGradient:
    case Role::kUnclipped:
    case Role::kParameter:
    case Role::kLoss: return true;
    case Role::kBuffer: return value.stats.nan != 0;  // a table may hold infinities
    case Role::kOutput:
      return value.of_module() && value.place.phase != Phase::kRecompute && !calls.any_around(i);
    case Role::kGradientNorm: return true;
    case Role::kState:
      // An average that was infinite once stays so; a single number may be a least loss so far.
      return value.stats.count > 1;
    default: return false;
  }
}

}  // namespace

bool NanStories::is_bad(const Passed& value) const {
  return value.measured && is_not_finite(value.stats, value.kind, value.place.phase) &&
         !leaves_unwritten(names_.text(value.op));
}

bool NanStories::is_unwritten(std::span<const Passed> step, size_t value) const {
  const Passed& weight = step[value];
  if (weight.kind != Role::kParameter || weight.place.phase != Phase::kForward) return false;
  bool used = false;
  for (const Passed& one : step.subspan(value + 1)) {
    if (one.place.scope != weight.place.scope) continue;
    if (one.slot == weight.slot) return !is_bad(one);
    if (one.kind != Role::kOutput || !one.of_module()) continue;
    if (!one.measured || is_bad(one)) return false;
    used = true;
  }
  return used;
}

/// A value of which the hash alone is recorded is as another one with its bytes.
std::optional<MadeBy> NanStories::maker_of(std::span<const Passed> step, size_t value) const {
  std::unordered_map<uint64_t, Health> by_hash;
  for (const Passed& one : step)
    if (one.measured) by_hash[one.stats.hash] = is_bad(one) ? Health::kBad : Health::kGood;
  const HealthOf health = [&](size_t i) {
    const auto found = by_hash.find(step[i].stats.hash);
    return found == by_hash.end() ? Health::kNotKnown : found->second;
  };
  return made_by(step, value, names_, health);
}

std::vector<NanStory> NanStories::see(std::span<const Passed> step) {
  std::vector<NanStory> told;
  if (found_) return told;
  for (const Passed& value : step)
    if (value.kind == Role::kLossScale) loss_scale_ = value.stats.mean;
  std::optional<size_t> data;
  std::vector<size_t> all;
  for (size_t i = 0; i < step.size(); ++i) {
    if (!is_bad(step[i]) || is_unwritten(step, i)) continue;
    if (step[i].place.phase == Phase::kData) {
      if (!data) data = i;
    } else if ((step[i].place.phase == Phase::kBackward && loss_scale_ != 0) ||
               overflows(step[i], loss_scale_)) {
      if (!hinted_) told.push_back({.kind = Kind::kScaled, .value = i});
      hinted_ = true;
    } else {
      all.push_back(i);
    }
  }
  if (all.empty() && !data) return told;
  const Stretches calls(step, *this, names_);
  const auto reached =
      std::ranges::find_if(all, [&](size_t i) { return counts(i, step[i], calls); });
  found_ = reached != all.end();
  if (data && (found_ || !missing_))
    told.push_back({.kind = found_ ? Kind::kFromData : Kind::kMissing, .value = *data});
  missing_ |= data.has_value();
  if (found_ && data) {
    told.back().reached = *reached;
  } else if (found_) {
    const auto birth = std::find_if(all.begin(), reached,
                                    [&](size_t i) { return calls.finite_around(i) == nullptr; });
    const Passed& end = step[*reached];
    NanStory story{.kind = Kind::kBorn, .value = *birth, .reached = *reached};
    story.may_mask = end.stats.nan == 0 && end.kind == Role::kOutput;
    if (birth != all.begin()) {
      story.ended = all.front();
      story.ended_in = calls.finite_around(all.front())->scope;
    }
    told.push_back(std::move(story));
  } else if (!all.empty() && !data) {
    if (!noted_) told.push_back({.kind = Kind::kEnds, .value = all.front()});
    noted_ = true;
  }
  return told;
}

}  // namespace convtrace::diff

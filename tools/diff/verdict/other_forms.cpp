#include "tools/diff/verdict/other_forms.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace convtrace::diff {
namespace {

bool is_mismatch(const ValueRecord& record, const Comparison& comparison) {
  return is_other_form(record, comparison) && comparison.verdict == Class::kShapeOrDtypeMismatch;
}

/// The comparison of the values that were made of a loss's inputs.
struct MadeOf {
  size_t count = 0;
  bool identical = true;
  bool explained = true;  ///< measured, and no larger than their other sources explain
  uint64_t hash = 0;      ///< hash of the loss

  void add(const Comparison& comparison) {
    ++count;
    identical &= comparison.verdict == Class::kIdentical;
    explained &= !comparison.born && comparison.verdict != Class::kBitDifference;
  }
  /// @param is_form  the input has another shape or type, so its contents cannot be compared.
  [[nodiscard]] bool agrees(bool is_form) const {
    return count > 0 && (is_form ? explained : identical);
  }
};

bool is_other_shape(const Comparison& comparison) {
  return comparison.verdict == Class::kShapeOrDtypeMismatch && comparison.field == Field::kShape;
}

/// @return whether a value was given to a call in another shape, or made of such a value.
bool is_given_otherwise(const ValueRecord& record, const Comparison& comparison) {
  return is_other_shape(comparison) &&
         (record.kind == Role::kInput || (record.kind == Role::kOutput && !comparison.born));
}

/// A call of a module: the matches from its first input to its last output.
struct Call {
  size_t first = 0, last = 0;
  bool has_output = false;
  bool shows = true;  ///< its inputs agree, its outputs can be compared
};

bool same_form(const SideReport& a, const SideReport& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

}  // namespace

void excuse_other_forms(std::span<const ValueRecord> base, std::span<const Match> matches,
                        std::span<Comparison> comparisons) {
  std::unordered_map<RecordKey, Class, KeyHash> worst_output;
  const auto record_of = [&](size_t m) -> const ValueRecord& { return base[matches[m].base]; };
  const auto is_one = [&](size_t m) { return is_mismatch(record_of(m), comparisons[m]); };
  size_t first = 0;
  while (first < comparisons.size() && !is_one(first)) ++first;
  for (size_t m = first; m < comparisons.size(); ++m) {
    if (record_of(m).kind != Role::kOutput) continue;
    Class& worst = worst_output[call_key(record_of(m))];
    worst = std::max(worst, comparisons[m].verdict);
  }
  for (size_t m = first; m < comparisons.size(); ++m) {
    if (!is_one(m)) continue;
    const auto worst = worst_output.find(call_key(record_of(m)));
    if (worst == worst_output.end() || worst->second >= Class::kDiverged) continue;
    comparisons[m].verdict = Class::kOtherForm;
    comparisons[m].born = false;
  }
}

void excuse_inner_forms(std::span<const ValueRecord> base, std::span<const Match> matches,
                        std::span<Comparison> comparisons) {
  if (std::ranges::none_of(comparisons, is_other_shape)) return;
  const auto record_of = [&](size_t m) -> const ValueRecord& { return base[matches[m].base]; };
  std::unordered_map<RecordKey, Call, KeyHash> calls;
  for (size_t m = 0; m < comparisons.size(); ++m) {
    const ValueRecord& record = record_of(m);
    const bool is_input = record.kind == Role::kInput;
    if (!(is_input || record.kind == Role::kOutput) || record.key.op || record.key.family) continue;
    Call& call = calls.try_emplace(call_key(record), Call{.first = m}).first->second;
    call.last = m;
    call.has_output |= !is_input;
    call.shows &= is_input ? is_match(comparisons[m].verdict) : !is_other_shape(comparisons[m]);
  }
  std::unordered_set<RecordKey, KeyHash> excused;  // backward passes of calls
  const auto excuse = [&](size_t m) {
    comparisons[m].verdict = Class::kOtherForm;
    comparisons[m].born = false;
  };
  for (const auto& [key, call] : calls) {
    if (!call.shows || !call.has_output || record_of(call.first).kind != Role::kInput) continue;
    const auto is_inner = [&, own = key](size_t m) {
      return comparisons[m].verdict >= Class::kDiverged && call_key(record_of(m)) != own;
    };
    bool all = true;
    for (size_t m = call.first; m < call.last && all; ++m)
      all = !is_inner(m) || is_given_otherwise(record_of(m), comparisons[m]);
    for (size_t m = call.first; m < call.last && all; ++m) {
      if (!is_inner(m)) continue;
      excuse(m);
      RecordKey behind = call_key(record_of(m));
      behind.phase = format::Phase::kBackward;
      excused.insert(behind);
    }
  }
  for (size_t m = 0; m < comparisons.size(); ++m)
    if (is_other_shape(comparisons[m]) && excused.contains(call_key(record_of(m)))) excuse(m);
}

void excuse_targets(std::span<const ValueRecord> base, std::span<const Match> matches,
                    std::span<Comparison> comparisons) {
  const auto record_of = [&](size_t m) -> const ValueRecord& { return base[matches[m].base]; };
  std::unordered_set<RecordKey, KeyHash> makers;  // calls that return the loss
  MadeOf loss, gradients;
  for (size_t m = comparisons.size(); m-- > 0;) {
    const ValueRecord& record = record_of(m);
    Comparison& comparison = comparisons[m];
    if (record.kind == Role::kGradOutput) {
      if (loss.count > 0) makers.clear(), loss = {}, gradients = {};
      gradients.add(comparison);
    } else if (record.kind == Role::kLoss) {
      loss.add(comparison);
      loss.hash = record.stats.hash;
    } else if (record.kind == Role::kOutput && loss.count > 0) {
      if (record.stats.hash == loss.hash) makers.insert(call_key(record));
    } else if (record.kind == Role::kInput && comparison.verdict >= Class::kDiverged) {
      const bool is_target = record.key.op ? record.of_loss : makers.contains(call_key(record));
      const bool is_form = is_mismatch(record, comparison);
      if (!is_target || !loss.agrees(is_form) || !gradients.agrees(is_form)) continue;
      comparison.verdict = Class::kOtherForm;
      comparison.born = false;
    }
  }
}

void add_other_form(std::vector<OtherForm>& all, OtherForm one) {
  const RecordReport& added = one.first;
  const auto known = std::ranges::find_if(all, [&added](const OtherForm& other) {
    return other.first.slot == added.slot && same_form(other.first.base, added.base) &&
           same_form(other.first.cand, added.cand);
  });
  if (known != all.end()) {
    known->values += one.values;
  } else if (all.size() < kMaxOtherForms) {
    all.push_back(std::move(one));
  }
}

}  // namespace convtrace::diff

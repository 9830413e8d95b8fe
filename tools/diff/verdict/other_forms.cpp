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

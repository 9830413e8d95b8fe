#include "tools/diff/verdict/other_forms.h"

#include <algorithm>
#include <unordered_map>

namespace convtrace::diff {
namespace {

bool is_mismatch(const ValueRecord& record, const Comparison& comparison) {
  return is_other_form(record, comparison) && comparison.verdict == Class::kShapeOrDtypeMismatch;
}

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
    if (record_of(m).kind != SlotKind::kOutput) continue;
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

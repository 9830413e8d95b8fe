#include "tools/diff/shown/shown_causes.h"

#include <utility>

#include "tools/diff/shown/first_numbers.h"

namespace convtrace::diff {
namespace {

bool is_behind_loss(const ValueRecord& record) {
  return record.key.phase == format::Phase::kBackward || is_parameter_gradient(record.kind);
}

}  // namespace

void ShownCauses::take(const StepRecords& step, bool in_base) {
  if (!begun_) gradients_.take(step, in_base);
  data_.take(step, in_base);
}

void ShownCauses::begin(const StepRecords& base, const StepRecords& cand,
                        std::span<const Match> matches, const Match& root, std::string what) {
  const ValueRecord& record = base.values[root.base];
  begun_ = true;
  if (is_first_weight(record)) at_root_ = drawn_otherwise(base, cand, matches);
  if (is_behind_loss(record) || is_scalar_result(record))
    at_root_ = gradients_.show(base, cand, matches, is_behind_loss(record));
  data_.begin(base, cand, matches, root, std::move(what));
}

std::optional<ShownCause> ShownCauses::cause() const { return at_root_ ? at_root_ : data_.cause(); }

}  // namespace convtrace::diff

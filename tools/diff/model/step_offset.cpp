#include "tools/diff/model/step_offset.h"

#include <charconv>
#include <cstdlib>

namespace convtrace::diff {
namespace {

/// @return how many updates were made before step 0 of a trace.
int64_t updates_before(const format::TraceMeta& meta) {
  int32_t updates = 0;
  const std::string_view text = meta.fact(kUpdatesBefore).value_or("");
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), updates);
  return parsed.ec == std::errc{} ? updates : 0;
}

}  // namespace

StepOffset step_offset(const format::TraceMeta& base, const format::TraceMeta& cand,
                       std::optional<int64_t> asked) {
  const int64_t in_base = updates_before(base), in_cand = updates_before(cand);
  if (asked) return {*asked, std::string(kOffsetAsked), in_base != in_cand};
  if (in_base == in_cand) return {};
  return {in_base - in_cand,
          "updates before step 0, by the optimizers' own counters: " + std::to_string(in_base) +
              " | " + std::to_string(in_cand),
          true};
}

std::optional<StepOffset> overruled_by_weights(const format::TraceMeta& base,
                                               const format::TraceMeta& cand) {
  const int64_t in_base = updates_before(base), in_cand = updates_before(cand);
  if (in_base < 0 || in_cand < 0) return std::nullopt;
  StepOffset offset;
  offset.overruled = {in_base, in_cand};
  return offset;
}

StepOffset by_weights(const StepOffset& known, int64_t by) {
  const std::string runs[] = {"baseline", "candidate"};
  const bool in_cand = by < 0;
  StepOffset offset = known;
  offset.steps += by;
  offset.why = "the first weights of the " + runs[in_cand] + " are those that the " +
               runs[!in_cand] + " has after " + std::to_string(std::abs(by)) +
               (std::abs(by) == 1 ? " step" : " steps");
  return offset;
}

}  // namespace convtrace::diff

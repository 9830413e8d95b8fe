#include "tools/diff/model/step_offset.h"

#include <charconv>

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

}  // namespace convtrace::diff

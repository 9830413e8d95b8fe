#include "tools/diff/read/repetition.h"

#include <algorithm>
#include <memory>
#include <variant>
#include <vector>

#include "reader/step_sums.h"
#include "reader/trace_reader.h"

namespace convtrace::diff {
namespace {

using format::StepSums;
using reader::find_step;
using reader::TraceReader;
using reader::TraceState;

/// Sums of the values only, of these steps and of other steps in the same chunks.
std::vector<StepSums> value_sums(TraceReader& trace, const std::vector<uint32_t>& steps) {
  // Chunks do not tell whether they contain values without a known step.
  const bool all = steps.back() == format::kNoStep;
  trace.select([&steps, all](const format::RecordHeader& chunk) {
    const auto first = std::ranges::lower_bound(steps, chunk.step_begin);
    const bool any = all || (first != steps.end() && *first <= chunk.step_end);
    return any ? reader::kKindSet<format::TensorStats> : reader::kNoKinds;
  });
  format::StepSummer summer(trace.definitions());
  while (const format::Event* event = trace.next()) {
    if (const auto* value = std::get_if<format::TensorStats>(event)) summer.add(*value);
  }
  return summer.sums();
}

/// The first step that may be incomplete: the last step of a trace that was not closed.
uint32_t whole_before(const TraceReader& trace, const std::vector<StepSums>& sums) {
  return trace.state() == TraceState::kComplete ? format::kNoStep : sums.back().step;
}

}  // namespace

std::optional<bool> repeats(const std::string& run, const std::string& repetition) {
  const auto base = TraceReader::open(run), other = TraceReader::open(repetition);
  if (!base.ok() || !other.ok()) return std::nullopt;
  const auto ours = reader::load_step_sums(base.value()->container());
  const auto theirs = reader::load_step_sums(other.value()->container());
  if (ours.empty() || theirs.empty()) return std::nullopt;
  bool known = true;
  std::vector<uint32_t> unlike;
  for (const StepSums& step : ours) {
    const StepSums* found = find_step(theirs, step.step);
    known &= found != nullptr;
    if (found != nullptr && *found != step) unlike.push_back(step.step);
  }
  if (!unlike.empty()) {
    const auto values = value_sums(*base.value(), unlike),
               again = value_sums(*other.value(), unlike);
    const uint32_t whole =
        std::min(whole_before(*base.value(), ours), whole_before(*other.value(), theirs));
    for (const uint32_t step : unlike) {
      const StepSums *a = find_step(values, step), *b = find_step(again, step);
      if (a == b || (a != nullptr && b != nullptr && *a == *b)) continue;
      if (step < whole || whole == format::kNoStep) return false;
      known = false;
    }
  }
  for (const auto* trace : {&base, &other})
    known &= trace->value()->state() != TraceState::kDamaged;
  return known ? std::optional(true) : std::nullopt;
}

}  // namespace convtrace::diff

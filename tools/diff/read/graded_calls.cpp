#include "tools/diff/read/graded_calls.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace convtrace::diff {
namespace {

using format::Phase;
using Call = std::pair<uint32_t, uint32_t>;  // scope, number

Call call_of(const ValueRecord& record) { return {record.key.scope.value, record.key.call}; }

bool is_below(std::string_view scope, std::string_view other) {
  return scope != other &&
         (other.empty() || (scope.starts_with(other) && scope[other.size()] == '.'));
}

/// The calls in evaluation that got a gradient, of modules that the forward phase does not have as
/// well.
std::set<Call> graded_calls(const StepRecords& step) {
  std::set<Call> evaluated, graded;
  for (const ValueRecord& record : step.values) {
    if (record.key.phase == Phase::kEvaluation && !record.key.op) evaluated.insert(call_of(record));
  }
  if (evaluated.empty()) return {};
  for (const ValueRecord& record : step.values) {
    if (record.key.phase == Phase::kBackward && record.kind == Role::kGradOutput &&
        evaluated.contains(call_of(record)))
      graded.insert(call_of(record));
  }
  for (const ValueRecord& record : step.values) {
    if (record.key.phase != Phase::kForward || record.kind != Role::kOutput) continue;
    std::erase_if(graded, [&](const Call& call) { return call.first == record.key.scope.value; });
  }
  return graded;
}

/// Numbers calls of each module as if those in evaluation were not in between: by the old numbers.
std::map<Call, uint32_t> renumbered(const std::set<Call>& trained) {
  std::map<Call, uint32_t> numbers;
  uint32_t scope = 0, next = 0;
  for (const Call& call : trained) {
    next = call.first == scope && !numbers.empty() ? next + 1 : 0;
    scope = call.first;
    numbers.emplace(call, next);
  }
  return numbers;
}

bool is_gradient(const ValueRecord& record) {
  return record.key.phase == Phase::kBackward &&
         (record.kind == Role::kGradOutput || record.kind == Role::kGradInput);
}

}  // namespace

void retrain_graded_calls(StepRecords& step, const format::Definitions& names) {
  const std::set<Call> graded = graded_calls(step);
  if (graded.empty()) return;
  std::set<uint32_t> scopes;
  for (const Call& call : graded) scopes.insert(call.first);
  std::set<uint32_t> outermost;
  std::ranges::copy_if(scopes, std::inserter(outermost, outermost.end()), [&](uint32_t scope) {
    return std::ranges::none_of(
        scopes, [&](uint32_t other) { return is_below(names.text({scope}), names.text({other})); });
  });
  // Values between a call's first and last one, in the same thread, belong to the call.
  struct Span {
    size_t first, last;
  };
  std::map<Call, Span> spans;
  for (size_t i = 0; i < step.values.size(); ++i) {
    const ValueRecord& record = step.values[i];
    if (record.key.phase != Phase::kEvaluation || !graded.contains(call_of(record))) continue;
    spans.try_emplace(call_of(record), Span{i, i}).first->second.last = i;
  }
  std::set<Call> trained;
  for (const auto& [call, span] : spans) {
    const uint32_t thread = step.values[span.first].thread;
    for (size_t i = span.first; i <= span.last; ++i) {
      RecordKey& key = step.values[i].key;
      if (step.values[i].thread != thread || key.phase != Phase::kEvaluation) continue;
      const bool is_data = outermost.contains(call.first) && call_of(step.values[i]) == call &&
                           !key.op && step.values[i].kind == Role::kInput;
      key.phase = is_data ? Phase::kData : Phase::kForward;
      if (!key.op) trained.insert(call_of(step.values[i]));
    }
  }
  const std::map<Call, uint32_t> numbers = renumbered(trained);
  for (ValueRecord& record : step.values) {
    const bool computes = record.key.phase == Phase::kData || record.key.phase == Phase::kForward;
    if (!computes && !is_gradient(record)) continue;
    const auto number = numbers.find(call_of(record));
    if (number != numbers.end()) record.key.call = number->second;
  }
}

}  // namespace convtrace::diff

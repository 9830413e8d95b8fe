#include "tools/diff/verdict/root_region.h"

#include <algorithm>
#include <span>

namespace convtrace::diff {
namespace {

constexpr size_t kMaxCalls = 8, kCallsShown = 3;

/// Adds the call of a record once, and whether it left its output memory unchanged.
void add_call(RegionPlace& place, const ValueRecord& record, bool unchanged,
              const PairReporter& reporter) {
  const std::string scope = reporter.text(record.key.scope), op = reporter.text(record.key.op);
  for (RegionCall& call : place.calls) {
    if (call.scope == scope && call.op == op) return void(call.unchanged |= unchanged);
  }
  if (place.calls.size() < kMaxCalls)
    place.calls.push_back({.scope = scope, .op = op, .unchanged = unchanged});
}

/// @return whether the output memory of a fused kernel is as the last record before it had it.
bool is_unchanged(const StepRecords& step, uint32_t index) {
  const ValueRecord& written = step.values[index];
  if (!written.fused || written.kind != Role::kOutput || written.value.storage == 0) return false;
  for (uint32_t i = index; i-- > 0;) {
    const ValueRecord& before = step.values[i];
    if (before.value.storage == written.value.storage && before.address == written.address &&
        before.bytes == written.bytes)
      return before.stats.hash == written.stats.hash;
  }
  return false;
}

}  // namespace

RegionPlace region_of(const StepPair& pair, uint32_t root, const PairReporter& reporter) {
  RegionPlace place;
  // Looks in the candidate, or in the baseline if the candidate records no fused kernel.
  const bool in_base = std::ranges::none_of(pair.cand.values, &ValueRecord::fused);
  const StepRecords& step = in_base ? pair.base : pair.cand;
  const auto index_of = [&](uint32_t m) {
    return in_base ? pair.alignment.matches[m].base : pair.alignment.matches[m].cand;
  };
  const uint32_t end = index_of(root);
  place.border_equal = true;
  uint32_t begin = 0;
  for (uint32_t m = 0; m < root; ++m) {
    const bool equal = agrees(pair.comparisons[m].verdict);
    if (!pair.base_of(m).key.op) place.border_equal &= equal;
    if (equal && index_of(m) < end) begin = std::max(begin, index_of(m));
  }
  const ValueRecord& record = step.values[end];
  // The candidate left the memory unchanged: a dropped write only if the baseline changed it.
  const auto dropped = [&](uint32_t index) { return !in_base && is_unchanged(step, index); };
  if (record.fused) {
    const bool base_wrote = !is_unchanged(pair.base, pair.alignment.matches[root].base);
    add_call(place, record, base_wrote && dropped(end), reporter);
    return place;
  }
  // A value of a module or parameter may be a kernel's output: then that kernel made it.
  for (uint32_t i = end; i-- > 0 && !record.key.op;) {
    const ValueRecord& one = step.values[i];
    if (!one.key.op || one.kind != Role::kOutput || one.stats.hash != record.stats.hash ||
        one.bytes != record.bytes)
      continue;
    if (one.fused) {
      add_call(place, one, false, reporter);
      return place;
    }
    break;  // an op that is called: earlier kernels made its inputs
  }
  const auto& alone = in_base ? pair.alignment.base_only : pair.alignment.cand_only;
  for (const uint32_t i : alone) {
    const ValueRecord& one = step.values[i];
    if (i > begin && i < end && one.fused && one.kind == Role::kOutput)
      add_call(place, one, false, reporter);
  }
  return place;
}

std::string region_text(const RegionPlace& place) {
  if (place.calls.empty()) return {};
  const std::string name = place.name.empty() ? "a compiled region" : "region " + place.name;
  std::string text = place.border_equal ? "equal at the border of " + name + ", first differs in "
                                        : "within " + name + ", differs in ";
  const auto shown = std::span(place.calls).first(std::min(place.calls.size(), kCallsShown));
  if (place.calls.size() > 1) text += "one of " + std::to_string(place.calls.size()) + " kernels: ";
  for (size_t i = 0; i < shown.size(); ++i) {
    const RegionCall& call = shown[i];
    text += i == 0 ? "" : ", ";
    text += call.kernel.empty() ? call.op : call.kernel;
    if (!call.scope.empty()) text += " (" + call.scope + ")";
    if (call.unchanged) text += "; dropped-write: memory that it was to write is as it was";
  }
  if (place.calls.size() > shown.size()) text += ", ...";
  return text;
}

}  // namespace convtrace::diff

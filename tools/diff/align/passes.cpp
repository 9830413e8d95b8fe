#include "tools/diff/align/passes.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "tools/diff/align/reorder.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {
namespace {

/// What a step's calls of a module take in one slot.
struct Taken {
  uint64_t calls = 0, rows = 0;
};

std::unordered_map<RecordKey, Taken, KeyHash> taken_in(const StepRecords& step) {
  std::unordered_map<RecordKey, Taken, KeyHash> taken;
  for (const ValueRecord& record : step.values) {
    if (!is_data(record) || record.dims_count == 0) continue;
    RecordKey place = record.key;
    place.call = place.occurrence = 0;
    Taken& one = taken[place];
    ++one.calls;
    one.rows += step.shape_of(record).front();
  }
  return taken;
}

/// @return whether the runs take as many rows of some data, in unlike numbers of calls.
bool is_divided_otherwise(const StepRecords& base, const StepRecords& cand) {
  const auto in_base = taken_in(base), in_cand = taken_in(cand);
  return std::ranges::any_of(in_base, [&](const auto& entry) {
    const auto other = in_cand.find(entry.first);
    return other != in_cand.end() && other->second.calls != entry.second.calls &&
           other->second.rows == entry.second.rows;
  });
}

std::vector<uint32_t> losses_of(const StepRecords& step) {
  std::vector<uint32_t> losses;
  for (uint32_t i = 0; i < step.values.size(); ++i)
    if (step.values[i].kind == Role::kLoss) losses.push_back(i);
  return losses;
}

/// Removes from both lists the losses that `fits` pairs, in the order of execution.
void pair_losses(std::vector<uint32_t>& base, std::vector<uint32_t>& cand, const auto& fits,
                 Alignment& alignment) {
  constexpr float kConfidence = 0.95F;
  std::erase_if(base, [&](uint32_t b) {
    const auto partner = std::ranges::find_if(cand, [&](uint32_t c) { return fits(b, c); });
    if (partner == cand.end()) return false;
    alignment.matches.push_back({b, *partner, MatchedBy::kReordered, kConfidence});
    std::erase(alignment.base_only, b);
    std::erase(alignment.cand_only, *partner);
    cand.erase(partner);
    return true;
  });
}

}  // namespace

bool is_parted(const ValueRecord& record, Parted parted) {
  using enum format::Phase;
  const format::Phase phase = record.key.phase;
  if (parted == Parted::kNothing) return false;
  if (phase == kBackward)
    return !is_parameter_gradient(record.kind) && record.kind != Role::kGradientNorm;
  const bool is_of_call = phase == kData || phase == kForward || phase == kLoss;
  return record.kind == Role::kLoss ||
         (parted == Parted::kCalls && is_of_call && record.kind != Role::kParameter);
}

void part_passes(const StepRecords& base, const StepRecords& cand, Alignment& alignment) {
  auto in_base = losses_of(base), in_cand = losses_of(cand);
  alignment.base_passes = in_base.size();
  alignment.cand_passes = in_cand.size();
  if (in_base.size() == in_cand.size()) return;
  alignment.parted = is_divided_otherwise(base, cand) ? Parted::kCalls : Parted::kPasses;
  std::vector<bool> holds;
  holds.reserve(alignment.matches.size());
  for (const Match& match : alignment.matches)
    holds.push_back(!is_parted(base.values[match.base], alignment.parted));
  drop_matches(alignment, holds);
  const auto same = [&](uint32_t b, uint32_t c) {
    return base.values[b].stats.hash == cand.values[c].stats.hash;
  };
  const auto like = [&](uint32_t b, uint32_t c) { return alike(base.values[b], cand.values[c]); };
  pair_losses(in_base, in_cand, same, alignment);
  pair_losses(in_base, in_cand, like, alignment);
  sort_by_execution(alignment, base.values, cand.values);
}

}  // namespace convtrace::diff

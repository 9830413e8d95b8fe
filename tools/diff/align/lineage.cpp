#include "tools/diff/align/lineage.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tools/trace/model/hash_mix.h"

namespace convtrace::diff {
namespace {

/// The fields that two records of one value share. The generation of the memory is not among them:
/// it is looked up for every record, and memory that was freed and allocated again under a live
/// tensor is what this search is for. The storage id is never reused.
struct Identity {
  uint64_t storage, offset, bytes;
  uint32_t version;
  format::DType dtype;
  bool operator==(const Identity&) const = default;
};

struct IdentityHash {
  size_t operator()(const Identity& id) const noexcept {
    return mix_all({id.storage, id.offset, id.bytes, id.version});
  }
};

/// Parameters, accumulated gradients and buffers are written in place, partly without the version
/// counter (`.data`, kernels of batch norm). They are compared over time, not along the flow of
/// values.
bool flows(const ValueRecord& record) {
  return record.value.storage != 0 && record.extent == format::Extent::kTensor &&
         record.kind != Role::kParameter && !is_parameter_gradient(record.kind) &&
         record.kind != Role::kBuffer && record.kind != Role::kInitialBuffer &&
         record.kind != Role::kSent && record.kind != Role::kReceived &&
         record.kind != Role::kNeeded && !is_other(record.kind);
}

/// @return for each record of an operand after its op, the operand's record before the op; kNoMatch
/// for other records.
std::vector<uint32_t> operands_before(const StepRecords& step) {
  std::vector<uint32_t> before(step.values.size(), kNoMatch);
  std::unordered_map<uint64_t, uint32_t> last;
  for (uint32_t i = 0; i < step.values.size(); ++i) {
    const ValueRecord& r = step.values[i];
    if (!r.key.op || r.value.storage == 0) continue;
    const uint64_t call = KeyHash()(call_key(r));
    if (!r.before) {
      last.insert_or_assign(mix_all({call, r.key.slot.value}), i);
      continue;
    }
    const auto found = last.find(mix_all({call, r.before.value}));
    if (found == last.end()) continue;
    const format::ValueId& value = step.values[found->second].value;
    if (value.storage == r.value.storage && value.offset == r.value.offset)
      before[i] = found->second;
  }
  return before;
}

/// @return whether one shape is a permutation of the other, and not equal to it.
bool is_turned(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  return !std::ranges::equal(a, b) && std::ranges::is_permutation(a, b);
}

/// @return nullopt if it is unknown: the ranks divide the two values into pieces differently, or
/// one is a view whose elements are hashed in another order.
std::optional<bool> changed(const StepRecords& step, uint32_t producer, uint32_t consumer) {
  const ValueRecord &a = step.values[producer], &b = step.values[consumer];
  if (a.stats.hash == b.stats.hash) return false;
  if (a.in_pieces || b.in_pieces || is_turned(step.shape_of(a), step.shape_of(b)))
    return std::nullopt;
  return true;
}

}  // namespace

std::vector<uint32_t> producers_of(const StepRecords& step) {
  std::vector<uint32_t> producers(step.values.size(), kNoMatch);
  std::unordered_map<Identity, uint32_t, IdentityHash> first;
  first.reserve(step.values.size());
  for (uint32_t i = 0; i < step.values.size(); ++i) {
    const ValueRecord& r = step.values[i];
    if (!flows(r)) continue;
    const Identity id{r.value.storage, r.value.offset, r.bytes, r.value.version, r.dtype};
    // The output of a fused kernel is a new value, although the kernel leaves the memory's version
    // counter as it was.
    if (r.fused && r.kind == Role::kOutput) {
      first.insert_or_assign(id, i);
      continue;
    }
    const auto [entry, is_new] = first.emplace(id, i);
    if (!is_new) producers[i] = entry->second;
  }
  return producers;
}

Lineage trace_lineage(const StepRecords& base, const StepRecords& cand,
                      const Alignment& alignment) {
  const std::vector<uint32_t> base_producers = producers_of(base);
  const std::vector<uint32_t> cand_producers = producers_of(cand);
  std::vector<uint32_t> match_of_base(base.values.size(), kNoMatch);
  for (uint32_t m = 0; m < alignment.matches.size(); ++m)
    match_of_base[alignment.matches[m].base] = m;
  const std::vector<uint32_t> base_before = operands_before(base);
  const std::vector<uint32_t> cand_before = operands_before(cand);
  Lineage lineage;
  lineage.seen_from.assign(alignment.matches.size(), kNoMatch);
  for (uint32_t m = 0; m < alignment.matches.size(); ++m) {
    const Match& consumer = alignment.matches[m];
    const bool by_op = base_before[consumer.base] != kNoMatch;
    const uint32_t base_producer =
        by_op ? base_before[consumer.base] : base_producers[consumer.base];
    const uint32_t cand_producer =
        by_op ? cand_before[consumer.cand] : cand_producers[consumer.cand];
    if (base_producer == kNoMatch || cand_producer == kNoMatch) continue;
    const uint32_t producer = match_of_base[base_producer];
    if (producer == kNoMatch || alignment.matches[producer].cand != cand_producer) continue;
    const auto in_base = changed(base, base_producer, consumer.base);
    const auto in_cand = changed(cand, cand_producer, consumer.cand);
    if (!in_base || !in_cand) continue;
    if (*in_base != *in_cand) {
      lineage.changed.push_back({producer, m, *in_cand, by_op});
    } else if (!*in_base && !by_op) {
      lineage.seen_from[m] = producer;
    }
  }
  return lineage;
}

}  // namespace convtrace::diff

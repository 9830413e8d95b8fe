#include "tools/diff/align/other_ops.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/diff/align/reorder.h"

namespace convtrace::diff {
namespace {

/// Kernels that a compiler fused are paired by part_unlike_fusions().
bool is_operand(const ValueRecord& record) {
  return record.key.op && !record.fused &&
         (record.kind == Role::kInput || record.kind == Role::kOutput || record.before);
}

using OpCall = std::tuple<format::StringId, format::Phase, uint32_t>;
OpCall op_call_of(const ValueRecord& record, format::StringId scope) {
  return {scope, record.key.phase, record.key.call};
}

struct ById {
  bool operator()(const OpCall& a, const OpCall& b) const {
    const auto plain = [](const OpCall& call) {
      return std::tuple(std::get<0>(call).value, std::get<1>(call), std::get<2>(call));
    };
    return plain(a) < plain(b);
  }
};

/// The ops of one call in one run.
struct Ops {
  std::vector<format::StringId> names;
  format::StringId first_slot;  ///< of the last op: the same slot again begins another op

  void add(const ValueRecord& record) {
    if (!names.empty() && names.back() == record.key.op && record.key.slot != first_slot) return;
    names.push_back(record.key.op);
    first_slot = record.key.slot;
  }
};
struct CallOps {
  size_t first = 0;  ///< index of the baseline's first operand
  Ops base, cand;
};

bool same_order(const StepRecords& base, const StepRecords& cand) {
  return std::ranges::equal(base.values, cand.values,
                            [](const ValueRecord& a, const ValueRecord& b) {
                              return (!is_operand(a) && !is_operand(b)) || a.key == b.key;
                            });
}

}  // namespace

std::vector<OtherOps> part_other_ops(const StepRecords& base, const StepRecords& cand,
                                     const ScopeMap& scopes, Alignment& alignment) {
  if (same_order(base, cand)) return {};
  std::map<OpCall, CallOps, ById> calls;
  for (size_t i = 0; i < base.values.size(); ++i) {
    const ValueRecord& record = base.values[i];
    if (!is_operand(record)) continue;
    calls.try_emplace(op_call_of(record, record.key.scope), CallOps{.first = i})
        .first->second.base.add(record);
  }
  // A run that recorded no ops of a call says nothing about them.
  for (const ValueRecord& record : cand.values) {
    if (!is_operand(record)) continue;
    const auto call = calls.find(op_call_of(record, scopes.of(record.key.scope).base));
    if (call != calls.end()) call->second.cand.add(record);
  }
  std::erase_if(calls, [](const auto& entry) {
    const auto& [first, in_base, in_cand] = entry.second;
    return in_cand.names.empty() || in_base.names == in_cand.names;
  });
  if (calls.empty()) return {};
  std::vector<bool> holds;
  holds.reserve(alignment.matches.size());
  for (const Match& match : alignment.matches) {
    const ValueRecord &a = base.values[match.base], &b = cand.values[match.cand];
    const bool is_doubtful = is_operand(a) && calls.contains(op_call_of(a, a.key.scope));
    holds.push_back(!is_doubtful ||
                    (std::ranges::equal(base.shape_of(a), cand.shape_of(b)) && alike(a, b)));
  }
  drop_matches(alignment, holds);
  std::vector<std::pair<size_t, OtherOps>> found;
  for (auto& [call, both] : calls)
    found.push_back(
        {both.first, {std::get<0>(call), std::get<1>(call), both.base.names, both.cand.names}});
  std::ranges::sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<OtherOps> list;
  for (auto& [first, ops] : found) list.push_back(std::move(ops));
  return list;
}

}  // namespace convtrace::diff

#include "tools/trace/model/record.h"

#include <algorithm>
#include <tuple>

#include "tools/trace/model/hash_mix.h"

namespace convtrace::diff {
namespace {

uint64_t pair_of(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

}  // namespace

uint64_t parameter_key(const ValueRecord& record) {
  return pair_of(record.key.scope.value, record.tensor.value);
}

bool is_update(const ValueRecord& record) {
  return record.kind == Role::kParameter && record.key.phase == format::Phase::kOptimizer;
}

bool is_scalar_result(const ValueRecord& record) {
  return record.kind == Role::kLoss || (record.kind == Role::kOutput && record.stats.count == 1);
}

bool is_before(const ValueRecord& a, const ValueRecord& b) {
  return std::tie(a.t_ns, a.seq) < std::tie(b.t_ns, b.seq);
}

RecordKey call_key(const ValueRecord& record) {
  RecordKey key = record.key;
  key.slot = {};
  key.family = {};
  key.occurrence = 0;
  // Inputs of a root module have a phase of their own.
  if (key.phase == format::Phase::kData) key.phase = format::Phase::kForward;
  return key;
}

bool is_first_weight(const ValueRecord& record) {
  return record.kind == Role::kParameter && record.key.phase == format::Phase::kForward;
}

bool trains(const StepRecords& step) {
  const auto is_of_training = [](const ValueRecord& r) {
    // Weights and buffers are recorded at the first call of their model, in whatever phase.
    const bool first_seen = r.kind == Role::kInitialBuffer || is_first_weight(r);
    return r.key.phase != format::Phase::kEvaluation && !first_seen;
  };
  return step.values.empty() || std::ranges::any_of(step.values, is_of_training);
}

std::string path_in(std::string_view module, std::string_view name) {
  return std::string(module) + (module.empty() ? "" : ".") + std::string(name);
}

bool is_inside(std::string_view path, std::string_view outer) {
  if (path.size() <= outer.size() || !path.starts_with(outer)) return false;
  return outer.empty() || path[outer.size()] == '.';
}

size_t KeyHash::operator()(const RecordKey& key) const noexcept {
  return mix_all({pair_of(key.scope.value, key.op.value), pair_of(key.family.value, key.slot.value),
                  pair_of(key.call, key.occurrence), static_cast<uint64_t>(key.phase)});
}

size_t KeyHash::operator()(const LaunchKey& key) const noexcept {
  return mix_all({pair_of(key.scope.value, key.family.value),
                  pair_of(key.call, static_cast<uint32_t>(key.phase))});
}

}  // namespace convtrace::diff

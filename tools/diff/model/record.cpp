#include "tools/diff/model/record.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "tools/diff/model/hash_mix.h"

namespace convtrace::diff {
namespace {

uint64_t pair_of(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

}  // namespace

SlotKind slot_kind(std::string_view slot) {
  constexpr std::pair<std::string_view, SlotKind> kKinds[] = {
      {"input", SlotKind::kInput},
      {"output", SlotKind::kOutput},
      {"grad_output", SlotKind::kGradOutput},
      {"grad_input", SlotKind::kGradInput},
      {"param", SlotKind::kParam},
      {"grad", SlotKind::kGrad},
      {"grad_unclipped", SlotKind::kGrad},
      {"loss", SlotKind::kLoss},
      {"buffer", SlotKind::kBuffer},
      {"buffer_initial", SlotKind::kInitialBuffer},
      {"param_written", SlotKind::kWritten},
      {"sent", SlotKind::kSent},
      {"received", SlotKind::kReceived},
      {"needed", SlotKind::kNeeded}};
  const std::string_view word = slot.substr(0, slot.find(':'));
  for (const auto& [text, kind] : kKinds) {
    if (word == text) return kind;
  }
  return SlotKind::kOther;
}

bool leaves_unwritten(std::string_view op) {
  constexpr std::string_view kOps[] = {
      "aten::empty",     "aten::empty_like",        "aten::empty_strided", "aten::empty_permuted",
      "aten::new_empty", "aten::new_empty_strided", "aten::resize_",       "aten::resize_as_"};
  const std::string_view name = op.substr(0, op.find('.'));  // without the overload
  return std::ranges::find(kOps, name) != std::end(kOps);
}

bool is_loss(std::string_view op) {
  return op.starts_with("aten::") && op.find("_loss") != std::string_view::npos;
}

bool is_fused(std::string_view op) { return op.starts_with("inductor::"); }

uint64_t parameter_key(const ValueRecord& record) {
  return pair_of(record.key.scope.value, record.tensor.value);
}

bool is_update(const ValueRecord& record) {
  return record.kind == SlotKind::kParam && record.key.phase == format::Phase::kOptimizer;
}

bool is_scalar_result(const ValueRecord& record) {
  return record.kind == SlotKind::kLoss ||
         (record.kind == SlotKind::kOutput && record.stats.count == 1);
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
  return record.kind == SlotKind::kParam && record.key.phase == format::Phase::kForward;
}

bool trains(const StepRecords& step) {
  const auto is_of_training = [](const ValueRecord& r) {
    // Weights and buffers are recorded at the first call of their model, in whatever phase.
    const bool first_seen = r.kind == SlotKind::kInitialBuffer || is_first_weight(r);
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

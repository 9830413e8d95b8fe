#include "tools/cli/read/nan_search.h"

#include "tools/common/freed_memory.h"
#include "tools/trace/model/not_finite.h"

namespace convtrace::tools {
namespace {

using format::Phase;
using format::TensorStats;

/// The trace is not trusted: a step may have any number of values.
constexpr size_t kMostKept = 1 << 20;
constexpr size_t kMostWarnings = 100;
/// From this share of subnormal elements on, precision is lost.
constexpr double kManySubnormals = 0.01;
/// Values are reported from this share of the largest number of their type on.
constexpr double kNearLimit = 0.5;

}  // namespace

Seen seen_of(const TensorStats& e, const format::Definitions& names) {
  return {.seq = e.header.seq,
          .step = e.header.step,
          .place = e.place,
          .slot = e.slot,
          .op = e.op,
          .role = diff::role_of(names.text(e.slot)),
          .kernel = e.kernel,
          .dtype = e.dtype,
          .stats = e.stats,
          .address = e.address,
          .bytes = e.bytes,
          .generation = e.value.generation,
          .poisoned = e.poisoned,
          .freed = holds_freed_memory(e.dtype, e.samples)};
}

bool NanSearch::slot_begins(format::StringId slot, std::string_view text) const {
  return definitions_.text(slot).starts_with(text);
}

void NanSearch::begin_step(uint32_t step) {
  const bool follows = step_ == format::kNoStep || step <= step_ + 1;
  before_gap_ = follows ? std::nullopt : std::optional(step_);
  step_ = step;
  inputs_.clear();
  if (!follows) {  // facts about parameters are out of date
    by_hash_.clear();
    newest_.clear();
  }
  // Parameters were recorded in the step before.
  std::erase_if(by_hash_,
                [](const auto& entry) { return entry.second.place.phase != Phase::kOptimizer; });
}

bool NanSearch::add(const TensorStats& e) {
  if (e.header.step != step_) begin_step(e.header.step);
  const bool is_input = slot_begins(e.slot, "input");
  if (e.capture == format::Capture::kHash || is_input) {
    if (inputs_.size() < kMostKept) {
      const Call call{e.place.scope.value, e.place.call,
                      e.place.phase == Phase::kData ? Phase::kForward : e.place.phase, e.op.value,
                      e.kernel.value};
      inputs_[call].emplace_back(e.slot, e.stats.hash);
    }
  }
  if (e.capture == format::Capture::kHash) return false;
  ++searched_;
  const Seen seen = seen_of(e, definitions_);
  if (seen.seq == birth_seq_) {
    birth_ = seen;
    collect_ingredients();
    return true;
  }
  remember(e, seen);
  return false;
}

void NanSearch::remember(const TensorStats& e, const Seen& seen) {
  if (by_hash_.size() < kMostKept) by_hash_[e.stats.hash] = seen;
  if (newest_.size() < kMostKept) newest_[{e.place.scope.value, e.slot.value}] = seen;
  if (diff::is_not_finite(seen.stats, seen.role, seen.place.phase)) return;
  frames_.push_back(seen);
  if (frames_.size() > kFrames) frames_.pop_front();
  warn(seen);
}

void NanSearch::warn(const Seen& seen) {
  const double limit = format::largest_finite(seen.dtype);
  if (limit == 0 || warnings_.size() >= kMostWarnings) return;
  const auto note = [&](Warning what) {
    if (warned_.emplace(std::tuple{seen.place.scope.value, seen.slot.value, what}, true).second)
      warnings_.emplace_back(what, seen);
  };
  const double subnormal = static_cast<double>(seen.stats.subnormal);
  if (seen.stats.saturated != 0) note(Warning::kSaturated);
  if (subnormal > kManySubnormals * static_cast<double>(seen.stats.count))
    note(Warning::kSubnormal);
  if (seen.stats.amax.as_f64() >= kNearLimit * limit) note(Warning::kNearLimit);
}

std::optional<Seen> NanSearch::newest(format::StringId scope, std::string_view slot) const {
  for (const auto& [key, seen] : newest_) {
    if (key.first == scope.value && definitions_.text(seen.slot) == slot) return seen;
  }
  return std::nullopt;
}

void NanSearch::collect_ingredients() {
  const Seen& bad = *birth_;
  const Call call{bad.place.scope.value, bad.place.call, bad.place.phase, bad.op.value,
                  bad.kernel.value};
  if (const auto inputs = inputs_.find(call); inputs != inputs_.end()) {
    for (const auto& [slot, hash] : inputs->second) {
      if (slot == bad.slot) continue;
      const auto value = by_hash_.find(hash);
      ingredients_.push_back(
          {slot, value == by_hash_.end() ? std::nullopt : std::optional(value->second)});
    }
  }
  // A parameter's gradient is computed from the gradient of its module's output, an updated
  // parameter from its gradient.
  const std::string_view slot = definitions_.text(bad.slot);
  std::optional<Seen> source;
  if (diff::is_parameter_gradient(bad.role)) source = newest(bad.place.scope, "grad_output:0");
  if (bad.role == diff::Role::kParameter)
    source = newest(bad.place.scope, "grad:" + std::string(diff::name_of(slot)));
  if (source && source->step == bad.step) ingredients_.push_back({source->slot, source});
  const bool forward = bad.place.phase == Phase::kForward || bad.place.phase == Phase::kEvaluation;
  if (forward && slot.starts_with("output")) {
    for (const auto& [key, seen] : newest_) {
      if (key.first != bad.place.scope.value) continue;
      if (seen.role == diff::Role::kParameter || seen.role == diff::Role::kBuffer)
        ingredients_.push_back({seen.slot, seen});
    }
  }
}

}  // namespace convtrace::tools

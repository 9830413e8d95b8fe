#include "format/findings/ops/op_values.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "format/findings/common/recent.h"
#include "format/findings/common/wording.h"

namespace convtrace::judge {
namespace {

/// A key of the op and its module call.
uint64_t key_of_op(const format::TensorStats& e) {
  uint64_t sum = mix(e.op.value, e.place.scope.value);
  sum = mix(sum, uint64_t{e.place.call} << 8 | static_cast<uint64_t>(e.place.phase));
  return mix(sum, e.header.step);
}

/// A key of the tensor within that.
uint64_t key_of(const format::TensorStats& e) {
  uint64_t sum = mix(key_of_op(e), e.value.storage);
  sum = mix(sum, e.value.offset);
  // A transposed view of an operand is another operand, whose bytes are hashed in its order.
  return mix(mix(mix(sum, e.bytes), e.layout), static_cast<uint64_t>(e.dtype));
}

bool is_of_cpu(const format::TensorStats& e) { return e.device.type == format::Device::Type::kCpu; }

/// On a device only samples are examined, so any NaN may be the pattern.
bool may_hold_poison(const format::TensorStats& e) {
  return e.poisoned != 0 || (!is_of_cpu(e) && e.stats.nan != 0);
}

constexpr size_t kMostBuffers = 256;
constexpr uint64_t kLeastElements = 4;
constexpr double kSameFactor = 1e-5;

/// @return whether all elements of a tensor were multiplied by one factor. False for a tensor whose
/// elements all have one magnitude, which shows nothing. The update of an average, which also adds to
/// it, changes its elements by different factors.
bool is_multiplied(const format::Stats& before, const format::Stats& after) {
  const auto size = [](const auto& number) { return std::abs(number.as_f64()); };
  if (before.count < kLeastElements || before.finite != before.count ||
      after.finite != after.count || size(before.amax) == size(before.amin_nonzero) ||
      before.l2 == 0 || after.l2 == 0)
    return false;
  const double factor = after.l2 / before.l2;
  const auto is_by = [factor](double a, double b) {
    return std::abs(b - factor * a) <= kSameFactor * std::abs(b);
  };
  return is_by(size(before.amax), size(after.amax)) && is_by(size(before.l1), size(after.l1)) &&
         is_by(size(before.amin_nonzero), size(after.amin_nonzero)) &&
         is_by(size(before.sum), size(after.sum));
}

OpFinding finding_of(format::FindingKind kind, const format::TensorStats& event) {
  OpFinding finding;
  finding.kind = kind;
  finding.header = event.header;
  finding.place = event.place;
  finding.op = event.op;
  finding.slot = event.slot;
  finding.address = event.address;
  finding.bytes = event.bytes;
  finding.value = event.value;
  return finding;
}

}  // namespace

void OpValues::judge(const format::Event& event, Findings& findings) {
  if (const auto* stats = std::get_if<format::TensorStats>(&event)) {
    owners_.see(*stats);
    if (stats->op) on(*stats, findings);
  } else if (const auto* op = std::get_if<format::Op>(&event)) {
    on(*op, findings);
  } else if (const auto* loss = std::get_if<format::Loss>(&event)) {
    // The lost event may have been an op's begin or end.
    if (loss->reason != format::LossReason::kQueueFull) return;
    open_.clear();
    bursts_.forget();
  }
}

void OpValues::on(const format::Op& event, Findings& findings) {
  if (event.moment == format::OpMoment::kBegin) open_.begin(event);
  if (event.moment == format::OpMoment::kEnd) (void)open_.end(event);
  if (std::optional<OpFinding> found = bursts_.on(event)) report(*std::move(found), findings);
}

void OpValues::on(const format::TensorStats& event, Findings& findings) {
  const SlotRole role = roles_.of(event.slot);
  const bool backward = event.place.phase == format::Phase::kBackward;
  const bool kept = backward && (role == SlotRole::kKept || role == SlotRole::kKeptBuffer);
  if (kept && role == SlotRole::kKeptBuffer) {
    if (buffers_.size() == kMostBuffers) buffers_.clear();
    buffers_[key_of(event)] = event.stats;
  }
  if (role == SlotRole::kTaken || kept) {
    taken_.get(key_of(event)).first = {event.stats.hash, event.slot};
    if (may_hold_poison(event)) took_poison(event);
  } else if (is_left(role)) {
    compare(event, role, findings);
  } else if (role == SlotRole::kGiven && event.poisoned != 0) {
    never_written(event, findings);
  }
}

void OpValues::compare(const format::TensorStats& left, SlotRole role, Findings& findings) {
  const uint64_t key = key_of(left);
  const Taken* const taken = taken_.find(key);
  if (taken == nullptr || taken->hash == left.stats.hash) return;
  const bool of_buffer = role == SlotRole::kLeftBuffer || role == SlotRole::kLeftCounted;
  const auto buffer = buffers_.find(key);
  const bool may_be_average =
      of_buffer && (buffer == buffers_.end() || !is_multiplied(buffer->second, left.stats));
  if (may_be_average && role == SlotRole::kLeftCounted) return;
  OpFinding finding = finding_of(format::FindingKind::kInputMutated, left);
  finding.slot = taken->slot;
  finding.hash_before = taken->hash;
  finding.hash_after = left.stats.hash;
  finding.shared = role == SlotRole::kLeftShared;
  finding.hint = may_be_average;
  bursts_.on_mutated(left, taken->slot);
  report(std::move(finding), findings);
}

void OpValues::took_poison(const format::TensorStats& event) {
  if (!is_of_cpu(event)) {
    brought_poison_.get(key_of_op(event)).first = true;
  } else if (OpenOp* const open = open_.of(event.header.thread, event.op)) {
    open->took_poison = true;
  }
}

/// Values of a device arrive after the op has ended, so its calls are distinguished by module.
bool OpValues::may_have_brought_poison(const format::TensorStats& event) {
  if (!is_of_cpu(event)) return brought_poison_.find(key_of_op(event)) != nullptr;
  const OpenOp* const open = open_.of(event.header.thread, event.op);
  return open == nullptr || open->took_poison;
}

void OpValues::never_written(const format::TensorStats& event, Findings& findings) {
  if (may_have_brought_poison(event)) return;
  OpFinding finding = finding_of(format::FindingKind::kNeverWritten, event);
  finding.count = event.poisoned;
  finding.all = is_of_cpu(event);
  finding.of =
      finding.all ? event.stats.count : event.samples.size() / format::element_bytes(event.dtype);
  finding.before = owners_.before(event);
  report(std::move(finding), findings);
}

void OpValues::report(OpFinding finding, Findings& findings) {
  finding.occurrence =
      ++occurrences_[{finding.kind, finding.op, finding.place.scope, finding.slot}];
  if (worth_saying(finding.occurrence)) findings.push_back(std::move(finding));
}

}  // namespace convtrace::judge

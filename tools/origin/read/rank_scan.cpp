#include "tools/origin/read/rank_scan.h"

#include <algorithm>
#include <cmath>

#include "format/model/loss_class.h"
#include "tools/common/element.h"
#include "tools/common/text.h"
#include "tools/origin/model/operation.h"
#include "tools/trace/model/hash_mix.h"
#include "tools/trace/model/not_finite.h"

namespace convtrace::origin {
namespace {

using diff::Role;
using format::Phase;
using format::StringId;
using format::TensorStats;

uint64_t shape_of(const TensorStats& event) {
  if (!event.has_shape) return 0;
  uint64_t mix = event.shape.size() + 1;
  for (const uint64_t extent : event.shape) mix = diff::mix_all({mix, extent});
  return mix;
}

}  // namespace

bool is_bad(const TensorStats& event, Role role) {
  if (event.capture == format::Capture::kHash) return false;
  return format::number_class(event.dtype) == format::NumberClass::kFloat &&
         diff::is_not_finite(event.stats, role, event.place.phase);
}

void RankScan::begin(const format::Definitions& texts, RankQueue& queue) {
  texts_ = &texts;
  queue_ = &queue;
  counted_step_ = format::kNoStep;
}

void RankScan::take(const format::Event& event) {
  if (const auto* stats = std::get_if<TensorStats>(&event)) {
    take(*stats);
  } else if (const auto* collective = std::get_if<format::Collective>(&event)) {
    take(*collective);
  } else if (const auto* fact = std::get_if<format::Fact>(&event)) {
    take(*fact);
  } else if (const auto* finding = std::get_if<format::Finding>(&event)) {
    queue_->errors += finding->level == format::Level::kError && !finding->suppressed ? 1 : 0;
  } else if (const auto* loss = std::get_if<format::Loss>(&event)) {
    queue_->lost += loss->count;
    queue_->lost_calls |= class_of(loss->reason) == format::LossClass::kRecords;
  }
}

/// @return the step of a record; a record made outside of any step belongs to the step before.
uint32_t RankScan::step_of(const format::EventHeader& header) {
  const uint32_t step = header.step == format::kNoStep ? queue_->read_step : header.step;
  queue_->read_step = std::max(queue_->read_step, step);
  if (step != counted_step_ || counts_ == nullptr) {
    counts_ = &queue_->steps[step];
    counted_step_ = step;
  }
  return step;
}

void RankScan::take(const format::Collective& event) {
  Call call;
  call.step = step_of(event.header);
  call.t_ns = event.header.t_ns;
  call.number = event.number;
  call.tag = event.tag;
  if (event.id <= last_id_) ++queue_->odd_calls;
  last_id_ = call.id = std::max(last_id_, event.id);  // a search needs ascending ones
  call.sent = event.sent;
  call.received = event.received;
  call.scope = own(event.place.scope);
  call.call = event.place.call;
  call.phase = event.place.phase;
  call.op = own(event.op);
  call.does = op_of(texts_->text(event.op));
  call.reduction = own(event.reduction);
  call.reduces = reduction_of(texts_->text(event.reduction));
  call.group = own(event.group);
  call.members = own(event.members);
  call.group_rank = event.group_rank;
  call.group_size = event.group_size;
  call.peer = event.peer;
  call.dtype = event.dtype;
  queue_->calls.push_back(call);
  const bool sums = call.does == Operation::kAllReduce || call.does == Operation::kReduceScatter;
  if (sums && call.group_size > 1) {
    std::vector<ParameterSeen>& seen = queue_->parameters[call.step];
    seen.push_back({.moment = ParameterMoment::kSummed});
    if (call.phase == Phase::kBackward) seen.push_back({.moment = ParameterMoment::kReduced});
  }
  const bool trains = call.phase == Phase::kForward || call.phase == Phase::kCommunication;
  if (call.does == Operation::kBroadcast && call.group_size > 1 && trains)
    queue_->parameters[call.step].push_back({.moment = ParameterMoment::kShared});
  see_ddp(call);
}

/// DDP compares the shapes of parameters when it is made: it gathers how many there are, and sends
/// the shapes of rank 0. So a model is known to be held by it though only what it holds is called.
void RankScan::see_ddp(const Call& call) {
  const bool integers = call.dtype == format::DType::kI64 && !call.scope;
  const bool sends = integers && call.does == Operation::kBroadcast && checked_ == call.group;
  if (sends) queue_->parameters[call.step].push_back({.moment = ParameterMoment::kWrapped});
  const bool counts = integers && call.does == Operation::kAllGather && call.sent == 1;
  checked_ = counts ? call.group : StringId{};
}

void RankScan::take(const format::Fact& event) {
  constexpr std::string_view kDdp = "DistributedDataParallel";
  if (!event.value.ends_with(kDdp) || texts_->text(event.name) != "class") return;
  queue_->parameters[step_of(event.header)].push_back({.moment = ParameterMoment::kWrapped});
}

Call* RankScan::call_of(uint64_t id) {
  std::deque<Call>& calls = queue_->calls;
  if (calls.empty() || id == 0) return nullptr;
  if (calls.back().id == id && queue_->odd_calls == 0) return &calls.back();
  const auto found =
      std::ranges::lower_bound(calls, id, {}, [](const Call& one) { return one.id; });
  return found != calls.end() && found->id == id && !found->done ? &*found : nullptr;
}

void RankScan::take(const TensorStats& event) {
  const Slot& slot = shared_.slot(*texts_, event.slot);
  const uint32_t step = step_of(event.header);
  const bool transported =
      event.collective != 0 && (slot.role == Role::kSent || slot.role == Role::kReceived);
  const bool bad = is_bad(event, slot.role);
  if (event.capture != format::Capture::kHash) ++counts_->measured;
  if (transported) {
    take_value(event, slot, bad);
  } else {
    take_local(event, slot, step, bad);
  }
}

uint32_t RankScan::fingerprint(const TensorStats& event) {
  if (event.capture == format::Capture::kHash) return kNone;
  const format::Sketch& sketch = event.stats.sketch;
  if (sketch.is_known())
    return queue_->fingerprints.add({.exponent = sketch.exponent, .bucket = sketch.bucket});
  if (event.stats.count > format::kMaxWhole || event.stats.count == 0) return kNone;
  const std::vector<double> elements = tools::decode_elements(event.dtype, event.samples);
  if (elements.size() != event.stats.count) return kNone;
  Fingerprint print;
  double largest = 0;
  for (const double element : elements) {
    if (!std::isfinite(element)) return kNone;
    largest = std::max(largest, std::abs(element));
  }
  if (largest != 0) (void)std::frexp(largest, &print.exponent);
  for (size_t i = 0; i < elements.size(); ++i)
    print.bucket[i] = static_cast<float>(std::ldexp(elements[i], -print.exponent));
  return queue_->fingerprints.add(print);
}

Value RankScan::digest(const TensorStats& event, const Slot& slot) const {
  Value value;
  value.hash = event.stats.hash;
  value.count = event.stats.count;
  value.bytes = event.bytes;
  value.shape = shape_of(event);
  value.seq = event.header.seq;
  value.index = slot.number <= UINT16_MAX ? static_cast<uint16_t>(slot.number) : 0;
  value.dtype = event.dtype;
  value.sent = slot.role == Role::kSent;
  value.measured = event.capture != format::Capture::kHash;
  if (!value.measured) return value;
  value.l2 = event.stats.l2;
  value.sum = tools::wide_as_double(event.dtype, event.stats.sum);
  value.l1 = tools::wide_as_double(event.dtype, event.stats.l1);
  value.low = tools::extreme_as_double(event.dtype, event.stats.min);
  value.high = tools::extreme_as_double(event.dtype, event.stats.max);
  value.finite = event.stats.finite == event.stats.count;
  value.nan = event.stats.nan != 0;
  value.constant = value.low == value.high;
  return value;
}

void RankScan::take_value(const TensorStats& event, const Slot& slot, bool bad) {
  ++queue_->value_count;
  Call* const call = call_of(event.collective);
  if (call == nullptr) {
    ++queue_->late_values;
    return;
  }
  if (bad) ++counts_->bad;
  Value value = digest(event, slot);
  value.bad = bad;
  (value.sent ? call->sent_seen : call->received_seen) += value.count;
  if (value.finite) value.fingerprint = fingerprint(event);
  value.next = call->first_value;
  call->first_value = queue_->values.add(value);
  if (!value.sent || queue_->bads.empty()) return;
  // A bad value recorded between a call and the tensor that it sends was computed before the call:
  // both came from a device in this order, and the call did not wait for the device.
  const uint64_t ordinal =
      queue_->base +
      static_cast<uint64_t>(std::ranges::lower_bound(queue_->calls, call->id, {},
                                                     [](const Call& one) { return one.id; }) -
                            queue_->calls.begin());
  for (auto one = queue_->bads.rbegin(); one != queue_->bads.rend() && one->before > ordinal; ++one)
    one->before = ordinal;
}

void RankScan::take_local(const TensorStats& event, const Slot& slot, uint32_t step, bool bad) {
  queue_->sees_modules = true;
  queue_->scaled |= slot.role == Role::kLossScale;
  take_parameter(event, slot, step, bad);
  const bool arbitrary = event.extent == format::Extent::kBlock || slot.role == Role::kArgument ||
                         (event.op && diff::leaves_unwritten(texts_->text(event.op)));
  if (slot.role == Role::kInput && event.capture != format::Capture::kHash) {
    Input& input = inputs_[next_input_++ % inputs_.size()];
    input = {.place = event.place, .op = event.op, .slot = slot.id};
    input.finite = event.stats.finite == event.stats.count;
    input.largest = tools::magnitude_as_double(event.dtype, event.stats.amax);
  }
  if (!bad || arbitrary) return;
  ++counts_->bad;
  take_bad(event, slot, step);
}

void RankScan::take_parameter(const TensorStats& event, const Slot& slot, uint32_t step, bool bad) {
  if (event.place.phase == Phase::kEvaluation) return;
  if (slot.role == Role::kGradientNorm)
    queue_->parameters[step].push_back({.moment = ParameterMoment::kClipped});
  const bool parameter = slot.role == Role::kParameter,
             buffer = slot.role == Role::kBuffer || slot.role == Role::kInitialBuffer;
  const bool gradient = slot.role == Role::kGradient;
  const bool loss = slot.role == Role::kLoss;
  const bool data = slot.role == Role::kInput && event.place.phase == Phase::kData;
  if (!parameter && !buffer && !gradient && !loss && !data) return;
  ParameterSeen seen{.scope = own(event.place.scope), .name = slot.name, .hash = event.stats.hash};
  seen.moment = gradient                                 ? ParameterMoment::kGradient
                : buffer                                 ? ParameterMoment::kBuffer
                : loss                                   ? ParameterMoment::kLoss
                : data                                   ? ParameterMoment::kData
                : event.place.phase == Phase::kOptimizer ? ParameterMoment::kUpdate
                                                         : ParameterMoment::kInitial;
  seen.bad = bad;
  if (gradient) seen.writes = event.value.version;
  const bool measured = event.capture != format::Capture::kHash;
  seen.varied = measured && event.stats.min != event.stats.max;
  seen.constant = measured && !seen.varied && event.stats.count > 1;
  queue_->parameters[step].push_back(seen);
}

void RankScan::take_bad(const TensorStats& event, const Slot& slot, uint32_t step) {
  LocalBad bad;
  bad.before = queue_->end();
  bad.step = step;
  bad.kind = event.place.phase == Phase::kData       ? BadClass::kData
             : event.place.phase == Phase::kBackward ? BadClass::kGradient
                                                     : BadClass::kOther;
  if (diff::is_parameter_gradient(slot.role)) bad.kind = BadClass::kGradient;
  for (auto one = queue_->bads.rbegin(); one != queue_->bads.rend(); ++one) {
    if (one->before != bad.before || one->step != step) break;
    if (one->kind == bad.kind) return;  // a consequence of the first
  }
  bad.seq = event.header.seq;
  bad.count = event.stats.count;
  bad.nan = event.stats.nan;
  bad.infinite = event.stats.pos_inf + event.stats.neg_inf;
  bad.scope = own(event.place.scope);
  bad.op = own(event.op);
  bad.slot = slot.id;
  bad.call = event.place.call;
  bad.phase = event.place.phase;
  bad.dtype = event.dtype;
  for (const Input& input : inputs_) {
    const bool same = slot.role == Role::kOutput && input.slot && input.finite &&
                      input.op == event.op && input.place.scope == event.place.scope &&
                      input.place.call == event.place.call;
    if (same && event.place.scope)
      bad.inputs.push_back(std::string(names_.text(input.slot)) +
                           " of the same call: finite, up to " + tools::number_text(input.largest));
  }
  queue_->bads.push_back(std::move(bad));
}

}  // namespace convtrace::origin

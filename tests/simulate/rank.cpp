// What a rank does one after another, and what its trace says of that.

#include "tests/simulate/rank.h"

#include <algorithm>

namespace convtrace::simulate {
namespace {

using format::DType;
using format::Phase;

constexpr uint64_t kStartNs = 1'000'000'000;

bool is_transfer(const UseInfo& info) { return info.op == "send" || info.op == "recv"; }

}  // namespace

void Rank::begin(uint32_t step, const Program& program) {
  step_ = step;
  program_ = &program;
  at_ = 0;
  counts_.clear();
  weights_before_ = weights_;
  biases_before_ = biases_;
  std::fill(weight_gradients_.begin(), weight_gradients_.end(), nullptr);
  std::fill(bias_gradients_.begin(), bias_gradients_.end(), nullptr);
  if (now_ns == 0) now_ns = kStartNs + mixed(rank_) % 1'000'000;
  record(Record::Kind::kStep, Phase::kForward, 0, 0);
  if (step > 0) return;
  const auto fact = [this](const char* name, const char* value) {
    Record& told = record(Record::Kind::kFact, Phase::kForward, 0, 0);
    told.op = world_.names.of(name);
    told.slot = world_.names.of(value);
  };
  fact("optimizer.0.class", "torch.optim.sgd.SGD");
  fact("optimizer.0.0.lr", "0.05");
}

void Rank::compute() {
  const Instruction& at = next();
  now_ns += 5'000 + mixed(now_ns ^ rank_) % 16 * 1'000;
  switch (at.what) {
    case Do::kInput: input(at); break;
    case Do::kPartial: partial(at); break;
    case Do::kFinish: finish(at); break;
    case Do::kHead: head(); break;
    case Do::kLoss: loss(at); break;
    case Do::kBackwardBegin: record(Record::Kind::kEnter, Phase::kBackward, 0, 0); break;
    case Do::kLossGradient: loss_gradient(at); break;
    case Do::kHeadFinish: gradient_ = buffer_; break;
    case Do::kBackward: backward(at); break;
    case Do::kBackwardFinish: backward_finish(at); break;
    case Do::kPack: pack(at); break;
    case Do::kBackwardEnd: record(Record::Kind::kLeave, Phase::kBackward, 0, 0); break;
    case Do::kNorm: norm(); break;
    case Do::kClip: clip(); break;
    case Do::kUpdate: update(at); break;
    case Do::kInitial: record_parameters(Phase::kForward); break;
    case Do::kCollective: break;
  }
  ++at_;
}

Call Rank::prepare() const {
  const Instruction& at = next();
  Call call;
  call.rank = rank_;
  call.instruction = &at;
  call.info = info_of(at.use, world_.model, world_.layout);
  call.group = world_.groups.of(call.info.group, rank_);
  call.group_rank = world_.groups.rank_in(call.info.group, rank_);
  call.size = static_cast<uint32_t>(world_.groups.all()[call.group].members.size());
  const bool has_root =
      call.info.op == "broadcast" || call.info.op == "reduce" || call.info.op == "gather";
  if (has_root) call.peer = 0;
  if (at.use == Use::kSendOn || at.use == Use::kReceiveBack) call.peer = stage_ + 1;
  if (at.use == Use::kSendBack || at.use == Use::kReceiveOn) call.peer = stage_ - 1;
  call.buffer = outgoing(at);
  if (call.buffer) {
    call.dtype = call.buffer->dtype;
    call.elements = call.buffer->elements.size();
  } else if (call.info.op == "recv") {
    call.dtype = world_.model.type_of(at.use == Use::kReceiveOn ? world_.model.layers - 1 : 0);
    call.elements = world_.model.elements;
  }
  const bool scales = at.fault != nullptr && at.fault->origin.kind == FaultKind::kScale;
  if (scales && call.buffer) call.buffer = scaled(call.buffer, double{at.fault->factor});
  return call;
}

Value Rank::outgoing(const Instruction& at) const {
  switch (at.use) {
    case Use::kInitial: return packed_parameters(world_.model.buckets[at.bucket]);
    case Use::kForward:
    case Use::kLogits:
    case Use::kHeadBackward:
    case Use::kBackward: return buffer_;
    case Use::kSendOn: return x_;
    case Use::kSendBack: return gradient_;
    case Use::kLoss: return losses_;
    case Use::kBucket: return buckets_[at.bucket];
    case Use::kNorm: return norm_;
    case Use::kParameters: return updated_shard(at.bucket);
    case Use::kMetric: return world_.maker.make(DType::kF32, {losses_->elements[0], 4096});
    case Use::kTimes: {
      Random random(seed_of({world_.seed, rank_, step_}));
      std::vector<float> times(4);
      for (float& time : times) time = 1 + 0.1F * random.unit();
      return world_.maker.make(DType::kF32, std::move(times));
    }
    default: return nullptr;
  }
}

void Rank::record_call(const Call& call, uint64_t number) {
  const Instruction& at = *call.instruction;
  const Name scope = scope_of(at, call.info), op = world_.names.of(call.info.op);
  const Phase phase = call.info.phase;
  const bool is_root = call.peer == call.group_rank;
  const bool sends = call.buffer && (call.info.op != "broadcast" || is_root);
  now_ns += 3'000;
  Record& record_of = record(Record::Kind::kCollective, phase, scope, at.micro);
  record_of.op = op;
  record_of.slot = call.info.reduction.empty() ? 0 : world_.names.of(call.info.reduction);
  record_of.id = ++calls_;
  record_of.dtype = call.dtype;
  record_of.group = call.group;
  record_of.group_rank = call.group_rank;
  record_of.peer = call.peer;
  record_of.number = number;
  record_of.sent = sends ? call.elements : 0;
  if (call.info.op == "all_gather") {
    record_of.received = call.elements * call.size;
  } else if (call.info.op == "gather") {
    record_of.received = is_root ? call.elements * call.size : 0;
  } else if (call.info.op == "reduce_scatter") {
    record_of.received = call.elements / call.size;
  } else if (call.info.op != "send" && (call.info.op != "reduce" || is_root)) {
    record_of.received = call.elements;
  }
  if (at.fault != nullptr && at.fault->op.empty()) {
    at.fault->op = call.info.op;
    at.fault->group = world_.groups.all()[call.group].name;
    at.fault->number = number;
    if (at.fault->origin.kind != FaultKind::kFlip) strike(at, "");
  }
  const uint32_t count = counts_[{phase, scope, op}]++;
  if (!sends) return;
  record_value(phase, scope, count, world_.names.of("sent:0"), call.buffer);
  records.back().op = op;
  records.back().id = calls_;
}

void Rank::complete(const Call& call, const std::vector<Value>& received) {
  const Instruction& at = *call.instruction;
  const Name scope = scope_of(at, call.info), op = world_.names.of(call.info.op);
  const bool flips = at.fault != nullptr && at.fault->origin.kind == FaultKind::kFlip;
  for (size_t i = 0; i < received.size(); ++i) {
    Value value = received[i];
    if (flips && i == 0) strike(at, "what it received", &value);
    record_value(call.info.phase, scope, counts_[{call.info.phase, scope, op}] - 1,
                 world_.names.of("received:" + std::to_string(i)), value);
    records.back().op = op;
    records.back().id = calls_;
    if (received.size() == 1) take(at, value);
  }
  ++at_;
}

void Rank::skip(const Call& call) {
  const Instruction& at = *call.instruction;
  const uint64_t n = call.elements;
  at.fault->op = call.info.op;
  at.fault->group = world_.groups.all()[call.group].name;
  strike(at, "");
  if (call.info.op == "all_reduce") {
    take(at, call.buffer);
  } else if (call.info.op == "reduce_scatter") {
    take(at, slice(call.buffer, call.group_rank * n / call.size, n / call.size));
  } else if (call.info.op == "recv") {
    take(at, world_.maker.make(call.dtype, std::vector<float>(n)));
  } else if (at.use == Use::kLogits) {
    std::vector<float> all(n * call.size);
    std::copy(call.buffer->elements.begin(), call.buffer->elements.end(),
              all.begin() + static_cast<ptrdiff_t>(n * call.group_rank));
    take(at, world_.maker.make(call.dtype, std::move(all)));
  }
  ++at_;
}

void Rank::take(const Instruction& at, const Value& value) {
  switch (at.use) {
    case Use::kForward:
    case Use::kLogits:
    case Use::kHeadBackward:
    case Use::kBackward: buffer_ = value; break;
    case Use::kReceiveOn: x_ = value; break;
    case Use::kReceiveBack: gradient_ = value; break;
    case Use::kBucket: buckets_[at.bucket] = value; break;
    case Use::kNorm: norm_ = value; break;
    case Use::kInitial:
    case Use::kParameters: unpack(world_.model.buckets[at.bucket], value); break;
    default: break;
  }
}

void Rank::strike(const Instruction& at, const char* what, Value* value) const {
  Fault& fault = *at.fault;
  if (value != nullptr) *value = damaged(*value, fault);
  if (fault.struck) return;
  fault.struck = true;
  const std::string where =
      fault.op.empty() ? std::string(what)
                       : fault.op + ' ' + std::to_string(fault.number) + " of " + fault.group;
  switch (fault.origin.kind) {
    case FaultKind::kNan: fault.text = "an element of " + where + " is NaN"; break;
    case FaultKind::kScale:
      fault.text = "what it sends is " + std::to_string(fault.factor) +
                   " times what it should be, from " + where + " on";
      break;
    case FaultKind::kLost: fault.text = "what it sends is lost in " + where; break;
    case FaultKind::kFlip: fault.text = "a bit flips in what it has of " + where; break;
    case FaultKind::kSkip:
      fault.text = "it leaves out a call of " + fault.op + " in " + fault.group;
      break;
    case FaultKind::kSwap: fault.text = "it calls " + where + " a call too early"; break;
    case FaultKind::kStale: fault.text = "its parameters are not updated"; break;
  }
}

Name Rank::layer_name(uint32_t layer, bool inner) const {
  const uint32_t number = stage_ * world_.model.layers + layer;
  return world_.names.of("layers." + std::to_string(number) + (inner ? ".proj" : ""));
}

Name Rank::scope_of(const Instruction& at, const UseInfo& info) const {
  if (info.in_layer) return layer_name(at.layer, true);
  if (at.use == Use::kLogits || at.use == Use::kHeadBackward) return world_.names.of("head");
  if (is_transfer(info)) return world_.names.of("");
  return 0;
}

Record& Rank::record(Record::Kind kind, Phase phase, Name scope, uint32_t call) {
  Record& made = records.emplace_back();
  made.kind = kind;
  made.phase = phase;
  made.scope = scope;
  made.call = call;
  now_ns += 1'000;
  made.t_ns = now_ns;
  return made;
}

void Rank::record_value(Phase phase, Name scope, uint32_t call, Name slot, const Value& value) {
  Record& made = record(Record::Kind::kStats, phase, scope, call);
  made.slot = slot;
  made.value = value;
}

void Rank::record_parameters(Phase phase) {
  for (uint32_t layer = 0; layer < world_.model.layers; ++layer) {
    if (!world_.model.is_recorded(layer)) continue;
    const Name scope = layer_name(layer, true);
    record_value(phase, scope, 0, world_.names.of("param:weight"), weights_[layer]);
    if (biases_[layer])
      record_value(phase, scope, 0, world_.names.of("param:bias"), biases_[layer]);
  }
}

}  // namespace convtrace::simulate

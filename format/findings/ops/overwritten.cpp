#include "format/findings/ops/overwritten.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "format/findings/common/recent.h"
#include "format/findings/common/wording.h"
#include "format/model/op_names.h"

namespace convtrace::judge {
namespace {

constexpr size_t kMostSuspected = 256, kMostStatistics = 1 << 16, kMostFilled = 1 << 10;
constexpr double kClearly = 0.05;  ///< relative change of a weight's norm

uint64_t key_of_memory(const format::TensorStats& e) {
  const uint64_t memory = mix(mix(e.value.storage, e.value.offset), e.value.generation);
  return mix(mix(memory, e.bytes), e.layout);  // a transposed view has other bytes in its order
}

/// Two tensors over borrowed memory have two storages at one address.
uint64_t key_of_place(const format::TensorStats& e) {
  return mix(mix(mix(e.address, e.device.index), e.bytes), e.layout);
}

uint64_t key_of_value(const format::TensorStats& e) {
  return mix(mix(key_of_memory(e), e.value.version), static_cast<uint64_t>(e.dtype));
}

}  // namespace

void Overwritten::see(const format::Event& event, Findings& findings) {
  if (const auto* loss = std::get_if<format::Loss>(&event)) {
    // The lost event may have been the record of a legitimate write.
    if (loss->reason != format::LossReason::kQueueFull) return;
    values_ = kept_ = {};
    open_.clear();
    return;
  }
  if (const auto* op = std::get_if<format::Op>(&event)) {
    if (op->moment == format::OpMoment::kBegin) open_.begin(*op);
    if (op->moment == format::OpMoment::kEnd) (void)open_.end(*op);
    return;
  }
  if (std::holds_alternative<format::Collective>(event)) ++collectives_;
  const auto* const stats = std::get_if<format::TensorStats>(&event);
  if (stats == nullptr || stats->value.storage == 0 || stats->bytes == 0) return;
  if (!hooked_.empty() && stats->place.phase != format::Phase::kBackward) {
    for (auto& [memory, finding] : hooked_) report(std::move(finding), findings);
    hooked_.clear();
  }
  const SlotRole role = roles_.of(stats->slot);
  if (role == SlotRole::kRunning && statistics_.size() < kMostStatistics)
    statistics_.insert(stats->value.storage);
  if (role == SlotRole::kNone || role == SlotRole::kRunning) return;
  const bool is_kept = role == SlotRole::kKept || role == SlotRole::kKeptLeaf ||
                       role == SlotRole::kKeptBuffer || role == SlotRole::kKeptOfCtx;
  const bool is_result = role == SlotRole::kGiven || is_left(role);
  const format::Phase phase = stats->place.phase;
  const bool forward = phase == format::Phase::kForward || phase == format::Phase::kData;
  const auto [bytes, known] = bytes_.get(key_of_memory(*stats));
  if (!known || bytes.hash != stats->stats.hash) bytes = seen_of(*stats, is_result);
  if (is_kept) return kept(*stats, role, findings);
  if (role == SlotRole::kState || role == SlotRole::kStateAfter)
    return state(*stats, role, findings);
  if (role == SlotRole::kHooked) return hooked(*stats);
  if (role == SlotRole::kLent) return lent(*stats, findings);
  if (role == SlotRole::kNeeded) return needed(*stats, findings);
  if (role == SlotRole::kPacked) return packed(*stats, findings);
  if (!stats->op && phase == format::Phase::kForward &&
      (role == SlotRole::kTaken || role == SlotRole::kGiven)) {
    const auto [first, is_old] = kept_.get(key_in_call(*stats));
    // What a node had saved before the hooks of the module ran is told from its output.
    if (!is_old || !first.op || first.step != stats->header.step)
      first = seen_of(*stats, role == SlotRole::kGiven);
  }
  if (stats->op && forward && (role == SlotRole::kTaken || role == SlotRole::kGiven) &&
      !is_torchs(stats->op))
    of_calls_.get(key_of_copy(*stats)).first = filled_of(*stats);
  if (role == SlotRole::kTaken && forward) taken(*stats);
  if (role == SlotRole::kTaken && !forward) {
    gradient(*stats, findings);
    read_back(*stats, findings);
  }
  if (is_left(role) && !forward) shared(*stats, role, findings);
  if ((role == SlotRole::kGiven || role == SlotRole::kLeftCounted) && forward) given(*stats);
}

/// An op or a module has made a value, or passes on one that it has taken: then it is no maker.
void Overwritten::given(const format::TensorStats& event) {
  const auto [seen, known] = values_.get(key_of_value(event));
  if (known && seen.hash == event.stats.hash && seen.step == event.header.step) {
    if (!event.op && seen.given && is_torchs(seen.op))
      passed_on_.get(key_of_output({}, event.place, event.slot)).first = key_of_torchs(event);
    return;
  }
  const Seen made = std::exchange(seen, seen_of(event, true));
  if (known && is_around(event, made)) suspect(event, made);
}

/// @return whether `event` is the output of the module whose own op has made it, so that only the
/// module's code and hooks ran in between. The output of an inner module does not count: compiled code
/// may have reused its memory.
bool Overwritten::is_around(const format::TensorStats& event, const Seen& made) const {
  return !event.op && made.op && made.given && made.place.scope == event.place.scope &&
         made.place.call == event.place.call;
}

Overwritten::Seen Overwritten::seen_of(const format::TensorStats& event, bool given) const {
  return {event.place, event.op,     event.slot, event.header.step, event.stats.hash,
          given,       collectives_, {},         event.stats.l2};
}

/// The op's forward has returned, or its backward is about to run.
void Overwritten::kept(const format::TensorStats& event, SlotRole role, Findings& findings) {
  // PyTorch looks at the count of writes of what save_for_backward keeps, and of nothing else.
  const bool of_ctx = role == SlotRole::kKeptOfCtx;
  const uint64_t value = of_ctx ? key_of_memory(event) : key_of_value(event);
  const uint64_t key = mix(mix(key_of_call(event.op, event.place), event.slot.value), value);
  if (event.place.phase != format::Phase::kBackward) {
    if (role == SlotRole::kKeptBuffer) begin_step(event);
    if (of_ctx) kept_.get(mix(key_of_place(event), event.stats.hash)).first = seen_of(event, true);
    if (of_ctx) filled(event);
    if (role != SlotRole::kKeptBuffer || is_read_only(event))
      kept_.get(key).first = seen_of(event, true);
    return;
  }
  const Seen* const made = kept_.find(key);
  if (made == nullptr || made->hash == event.stats.hash) return;
  // A buffer that is used again has the new bytes in another forward, perhaps of an op that keeps it in
  // a tensor of its own, or is what an earlier backward of the call returned; what backwards add to is
  // neither.
  const Seen* const first = bytes_.find(key_of_memory(event));
  const bool is_used =
      first != nullptr &&
      (first->place.phase != format::Phase::kBackward ||
       (first->given && first->hash == event.stats.hash && !(of_ctx && is_torchs(first->op))));
  const Seen* other =
      of_ctx && !is_used ? kept_.find(mix(key_of_place(event), event.stats.hash)) : nullptr;
  const Seen* const over = of_ctx && !is_used ? filled_over(event, *made) : nullptr;
  if (over != nullptr) other = over;
  if (of_ctx && !is_used && (other == nullptr || other->step != made->step)) return;
  OpFinding finding = finding_of(event, *made);
  if (other != nullptr) finding.first = owner_of(event.value, *other);
  finding.in_part = over != nullptr;
  finding.loosely = role != SlotRole::kKept;
  const Begun* const begun = begun_.find(key_of_memory(event));
  finding.hint = role == SlotRole::kKeptBuffer && (begun == nullptr || !begun->alike);
  report(std::move(finding), findings);
}

Overwritten::Filled Overwritten::filled_of(const format::TensorStats& event) const {
  return {event.address, event.bytes, event.device, seen_of(event, true)};
}

/// Notes a tensor on ctx that is a copy of what the call took or gave.
void Overwritten::filled(const format::TensorStats& event) {
  if (!filled_.empty() && filled_.front().seen.step != event.header.step) filled_.clear();
  const Filled* const copied = of_calls_.find(key_of_copy(event));
  if (copied != nullptr && copied->seen.step == event.header.step &&
      copied->address != event.address && filled_.size() < kMostFilled)
    filled_.push_back(filled_of(event));
}

/// @return what a later call has filled of the memory that a call has filled and kept on ctx: a part of
/// it, and memory beside it. Parts of one array on purpose lie beside or in each other.
const Overwritten::Seen* Overwritten::filled_over(const format::TensorStats& event,
                                                  const Seen& made) const {
  const uint64_t begin = event.address, end = begin + event.bytes;
  auto at = std::ranges::find_if(filled_, [&](const Filled& one) {
    return one.address == begin && one.bytes == event.bytes && one.seen.hash == made.hash &&
           one.seen.step == made.step && one.seen.place.scope == made.place.scope &&
           one.seen.place.call == made.place.call && one.seen.slot == made.slot;
  });
  for (; at != filled_.end(); ++at) {
    const uint64_t first = at->address, last = first + at->bytes;
    const bool across = (begin < first && first < end && end < last) ||
                        (first < begin && begin < last && last < end);
    if (across && at->device == event.device && at->seen.hash != made.hash) return &at->seen;
  }
  return nullptr;
}

/// @return whether a later call of a module has used another weight in this memory. A program may
/// normalize or gather weights anew in each call, to nearly the same numbers.
bool Overwritten::is_rewritten(const format::TensorStats& event, const Seen& made) const {
  const Seen* const first = bytes_.find(key_of_memory(event));
  return first != nullptr && first->hash == event.stats.hash && first->step == made.step &&
         first->place.phase == format::Phase::kForward && first->slot == made.slot &&
         first->place.scope == made.place.scope && first->place.call != made.place.call &&
         first->l2 != 0 && std::abs(first->l2 - made.l2) > kClearly * made.l2 && made.l2 != 0;
}

/// @return the first record of the bytes that lie there now, if they are other ones than `made` had and
/// came in its step; null if not, or if `made` is null.
const Overwritten::Seen* Overwritten::first_over(const format::TensorStats& event,
                                                 const Seen* made) const {
  if (made == nullptr || made->hash == event.stats.hash || made->step != event.header.step)
    return nullptr;
  const Seen* const first = bytes_.find(key_of_memory(event));
  return first != nullptr && first->step == made->step ? first : nullptr;
}

/// Takes a record after a forward, when the backward pass begins, before the forward's backward, which
/// reads the tensor's present bytes, or behind it. A backward that has changed them works there.
void Overwritten::state(const format::TensorStats& event, SlotRole role, Findings& findings) {
  const uint64_t key = mix(key_of_output(event.op, event.place, event.slot), event.bytes);
  if (event.place.phase == format::Phase::kLoss) return;
  if (role == SlotRole::kStateAfter) {
    const auto read = read_.extract(key);
    if (!read.empty() && read.mapped().hash_after == event.stats.hash)
      report(std::move(read.mapped()), findings);
    return;
  }
  if (event.place.phase != format::Phase::kBackward) {
    kept_.get(key).first = seen_of(event, true);
    return;
  }
  const Seen* const made = kept_.find(key);
  const Seen* const first = first_over(event, made);
  if (first == nullptr || first->place.phase == format::Phase::kBackward) return;
  OpFinding finding = finding_of(event, *made);
  finding.loosely = true;
  // The program may have written it on purpose behind the forward pass: a count, a factor of the loss.
  finding.hint = first->place.phase == format::Phase::kLoss;
  if (read_.size() == kMostSuspected) read_.clear();
  read_.insert_or_assign(key, std::move(finding));
}

/// Behind a backward, of a gradient that others perhaps held when it began.
void Overwritten::shared(const format::TensorStats& event, SlotRole role, Findings& findings) {
  const auto found = suspected_.find(key_of_shared(event));
  if (found == suspected_.end()) return;
  if (role == SlotRole::kLeftShared && found->second.header.step == event.header.step)
    report(std::move(found->second), findings);
  suspected_.erase(found);
}

/// Notes a buffer's bytes when an op first saves it in a step. A running average does not begin two
/// steps with the same bytes.
void Overwritten::begin_step(const format::TensorStats& buffer) {
  const auto [begun, known] = begun_.get(key_of_memory(buffer));
  if (known && begun.step == buffer.header.step) return;
  begun = {buffer.header.step, buffer.stats.hash, known && begun.hash == buffer.stats.hash};
}

/// @return whether a buffer that an op has saved still has the bytes that the op took, and holds no
/// running statistics. Kernels of normalizations write those without PyTorch's count, and a backward
/// in training does not read them.
bool Overwritten::is_read_only(const format::TensorStats& buffer) const {
  const Seen* const taken = values_.find(key_of_value(buffer));
  return taken != nullptr && taken->hash == buffer.stats.hash &&
         taken->step == buffer.header.step && !statistics_.contains(buffer.value.storage);
}

/// Takes the record of lent data at the begin of a backward pass, which should find the bytes that the
/// forward pass has read.
void Overwritten::lent(const format::TensorStats& event, Findings& findings) {
  const Seen* const read = values_.find(key_of_value(event));
  if (read == nullptr || read->hash == event.stats.hash || read->step != event.header.step) return;
  OpFinding finding = finding_of(event, *read);
  finding.loosely = true;
  report(std::move(finding), findings);
}

/// Takes a record of a tensor that a node of a module's call has saved. That of the forward phase is
/// kept; the other one is made when the node is about to run, and should have the same bytes. Scores
/// from which a loss is not what it was should have those of the output that they are.
void Overwritten::needed(const format::TensorStats& event, Findings& findings) {
  if (event.place.phase == format::Phase::kForward) {
    kept_.get(key_in_call(event)).first = seen_of(event, true);
    return;
  }
  const bool of_loss = event.place.phase == format::Phase::kLoss;
  const Seen* const seen =
      of_loss ? values_.find(key_of_value(event)) : kept_.find(key_in_call(event));
  if (seen == nullptr || seen->hash == event.stats.hash || seen->step != event.header.step) return;
  // An average over ranks may lie in the loss's own memory, and weights may be received.
  const std::string_view slot = definitions_.text(event.slot);
  const bool of_weight = slot == "needed:weight" || slot == "needed:mat2";
  if ((of_loss || of_weight) && seen->collectives != collectives_) return;
  OpFinding finding = finding_of(event, *seen);
  // A program may normalize, merge or gather weights anew on purpose, to nearly the same numbers.
  finding.hint = of_weight && !is_rewritten(event, *seen);
  finding.loosely = of_weight && !finding.hint;
  if (of_loss) finding.place = seen->place;  // the module's, since the loss has none
  report(std::move(finding), findings);
}

/// Takes a record of a tensor into which a hook has packed what a node saves, when the module's call is
/// left, and when the node is about to run. Whatever is packed later into memory that is still needed
/// has its bytes then; a buffer that is filled later has others.
void Overwritten::packed(const format::TensorStats& event, Findings& findings) {
  const uint64_t key =
      mix(mix(key_of_call(event.op, event.place), event.slot.value), key_of_memory(event));
  if (event.place.phase == format::Phase::kForward) {
    kept_.get(key).first = seen_of(event, true);
    return;
  }
  const Seen* const made = kept_.find(key);
  const Seen* const first = first_over(event, made);
  if (first == nullptr || first->place.phase != format::Phase::kForward) return;
  report(finding_of(event, *made), findings);
}

void Overwritten::taken(const format::TensorStats& event) {
  const auto [seen, known] = values_.get(key_of_value(event));
  const Seen now = seen_of(event, false);
  if (known && seen.hash == now.hash) {
    seen.last = owner_of(event.value, now);
    return;
  }
  const Seen made = std::exchange(seen, now);
  if (known && made.given) suspect(event, made);
}

/// A value has other bytes than when it was made.
void Overwritten::suspect(const format::TensorStats& event, const Seen& made) {
  if (made.step != event.header.step || made.collectives != collectives_) return;
  const uint64_t output =
      is_torchs(made.op) ? key_of_torchs(event) : key_of_output(made.op, made.place, made.slot);
  const auto is_old = [&event](const auto& one) {
    return one.second.header.step != event.header.step;
  };
  if (const auto known = suspected_.find(output); known != suspected_.end() && is_old(*known))
    suspected_.erase(known);
  if (suspected_.size() == kMostSuspected) std::erase_if(suspected_, is_old);
  if (suspected_.size() == kMostSuspected) suspected_.clear();
  suspected_.emplace(output, finding_of(event, made));
}

/// Takes the gradient of an output, which proves that the output takes part in the backward pass: a
/// suspicion about it is reported. Between the record of a module and that of the op that made the
/// module's output only hooks can have written the gradient.
void Overwritten::gradient(const format::TensorStats& event, Findings& findings) {
  const auto [come, known] = came_.get(key_in_call(event));
  if (!event.op) {
    come = seen_of(event, false);
  } else if (known && !come.op && come.step == event.header.step && come.hash != event.stats.hash &&
             come.collectives == collectives_) {
    if (suspected_.size() == kMostSuspected) suspected_.clear();
    suspected_.insert_or_assign(key_of_shared(event), finding_of(event, come));
  }
  const uint64_t output = key_of_output(event.op, event.place, event.slot);
  confirm(output, event.header.step, findings);
  const uint64_t* const inside = event.op ? nullptr : passed_on_.find(output);
  if (inside != nullptr) confirm(*inside, event.header.step, findings);
}

/// Takes the record of a gradient behind the program's hooks, before the node of PyTorch's runs. Others
/// hold it, or hooks have written it before: those of each holder may limit it alike.
void Overwritten::hooked(const format::TensorStats& event) {
  const uint64_t memory = key_of_place(event);
  const auto before = hooked_.find(memory);
  if (before != hooked_.end() && before->second.hash_after == event.stats.hash) {
    hooked_.erase(before);
    return;
  }
  const Seen* const come = came_.find(key_in_call(event));
  if (come == nullptr || come->op || come->step != event.header.step ||
      come->hash == event.stats.hash || come->collectives != collectives_ ||
      hooked_.size() == kMostSuspected)
    return;
  OpFinding finding = finding_of(event, *come);
  finding.loosely = true;  // a program may limit the gradient of all branches by one hook
  hooked_.insert_or_assign(memory, std::move(finding));
}

/// An output takes part in the backward pass of a step: a suspicion about it is reported.
void Overwritten::confirm(uint64_t output, uint32_t step, Findings& findings) {
  const auto found = suspected_.find(output);
  if (found == suspected_.end()) return;
  if (found->second.header.step == step) {
    found->second.loosely = !found->second.writer_known;
    report(std::move(found->second), findings);
  }
  suspected_.erase(found);
}

/// Takes an operand of an op of torch's own in the backward pass. Outside of custom ops these are
/// gradients and what autograd has saved, which should have the bytes of the forward pass.
void Overwritten::read_back(const format::TensorStats& event, Findings& findings) {
  if (!is_torchs(event.op) || event.device.type != format::Device::Type::kCpu ||
      open_.innermost(event.header.thread) != nullptr)
    return;
  const Seen* const seen = values_.find(key_of_value(event));
  if (seen == nullptr || seen->step != event.header.step) return;
  if (seen->hash == event.stats.hash) {
    const auto found = suspected_.find(key_of_torchs(event));
    if (found != suspected_.end() && found->second.last.slot)
      confirm(found->first, event.header.step, findings);
    return;
  }
  const Seen* const first = bytes_.find(key_of_memory(event));
  if (!seen->given || !is_torchs(seen->op) || !first->given || first->step != seen->step ||
      first->place.phase == format::Phase::kBackward || first->collectives != seen->collectives)
    return;
  report(finding_of(event, *seen), findings);
}

/// @return whether an op is one of torch's own, of which records are made on request.
bool Overwritten::is_torchs(format::StringId op) const {
  return definitions_.text(op).starts_with("aten::");
}

Owner Overwritten::owner_of(const format::ValueId& value, const Seen& seen) {
  return {value.generation, seen.place, seen.step, seen.slot, seen.op};
}

OpFinding Overwritten::finding_of(const format::TensorStats& victim, const Seen& made) const {
  OpFinding finding;
  finding.kind = format::FindingKind::kOverwritten;
  finding.header = victim.header;
  finding.address = victim.address;
  finding.bytes = victim.bytes;
  finding.value = victim.value;
  finding.hash_before = made.hash;
  finding.hash_after = victim.stats.hash;
  const Seen reader = seen_of(victim, false);
  finding.made = owner_of(victim.value, made);
  finding.reader = owner_of(victim.value, reader);
  finding.last = made.last;
  const Seen* const first = bytes_.find(key_of_memory(victim));
  const auto is_reader = [&reader](const Seen& seen) {
    return seen.place.scope == reader.place.scope && seen.place.call == reader.place.call &&
           seen.place.phase == reader.place.phase && seen.op == reader.op &&
           seen.slot == reader.slot;
  };
  finding.writer_known =
      first != nullptr && first->given && first->step == reader.step && !is_reader(*first);
  const Seen& told = finding.writer_known ? *first : reader;
  if (first != nullptr) finding.first = owner_of(victim.value, *first);
  finding.place = told.place;
  finding.op = told.op;
  finding.slot = told.slot;
  finding.other = finding.writer_known ? victim.slot : made.slot;
  return finding;
}

/// @return the key of a gradient that the backward of an op takes in one call of a module.
uint64_t Overwritten::key_of_shared(const format::TensorStats& event) const {
  return mix(mix(key_in_call(event), event.op.value), 1);
}

/// @return a key that is equal for an operand of a custom op and its copy that the same call keeps.
uint64_t Overwritten::key_of_copy(const format::TensorStats& event) const {
  return mix(mix(key_of_call(event.op, event.place), event.bytes), event.stats.hash);
}

/// @return the key of a value in one call of a module.
uint64_t Overwritten::key_in_call(const format::TensorStats& event) const {
  return mix(key_of_call({}, event.place), key_of_value(event));
}

/// @return the key of a suspicion about what an op of torch's own has made: a call of a module may have
/// many calls of one such op.
uint64_t Overwritten::key_of_torchs(const format::TensorStats& event) {
  return mix(key_of_value(event), 2);
}

uint64_t Overwritten::key_of_call(format::StringId op, const format::Place& place) const {
  std::string_view name = definitions_.text(op);
  if (const std::string_view forward = format::forward_name(name); !forward.empty()) name = forward;
  const uint64_t hash = op ? std::hash<std::string_view>()(name) : 0;
  return mix(mix(hash, place.scope.value), place.call);
}

/// @return a key that is equal for output:I and grad_output:I of one call.
uint64_t Overwritten::key_of_output(format::StringId op, const format::Place& place,
                                    format::StringId slot) const {
  const std::string_view text = definitions_.text(slot);
  const std::string_view index = text.substr(std::min(text.find(':'), text.size()));
  return mix(key_of_call(op, place), std::hash<std::string_view>()(index));
}

void Overwritten::report(OpFinding finding, Findings& findings) {
  const Owner& reader = finding.reader;
  finding.occurrence = ++occurrences_[{finding.op, reader.op, reader.place.scope, reader.slot}];
  if (worth_saying(finding.occurrence)) findings.push_back(std::move(finding));
}

}  // namespace convtrace::judge

#include "tools/origin/judge/not_finite.h"

#include <algorithm>
#include <cmath>

#include "tools/common/text.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

const Value* first_bad(std::span<const Value* const> values) {
  for (const Value* value : values)
    if (value->bad) return value;
  return nullptr;
}

bool measured(std::span<const Value* const> values) {
  return std::ranges::any_of(values, [](const Value* value) { return value->measured; });
}

/// @return whether the operation may move flat buffers with padding.
bool may_have_padding(Operation op) {
  return op == Operation::kAllGather || op == Operation::kReduceScatter ||
         op == Operation::kAllToAll;
}

/// @return whether a member's data reach others.
bool gives(const Meeting& meeting, const Member& member) {
  if (meeting.does == Operation::kBarrier) return false;
  const bool from_root =
      meeting.does == Operation::kBroadcast || meeting.does == Operation::kScatter;
  return from_root ? member.is_root() : member.call->does != Operation::kRecv;
}
/// @return whether a member gets others' data.
bool takes(const Meeting& meeting, const Member& member) {
  if (meeting.does == Operation::kBarrier || member.call->does == Operation::kSend) return false;
  const bool to_root = meeting.does == Operation::kReduce || meeting.does == Operation::kGather;
  return !to_root || member.is_root();
}

std::string amount(uint64_t nan, uint64_t infinite, uint64_t count, format::DType dtype) {
  return std::to_string(nan) + " NaN, " + std::to_string(infinite) + " infinite of " +
         tools::counted(count, "element") + " (" + std::string(to_string(dtype)) + ")";
}

}  // namespace

NotFinite::NotFinite(const Job& job, Told& told) : job_(job), told_(told) {}

/// A value of another class than `kind` proves that a dormant value was not intended.
void NotFinite::confirm(uint32_t queue, BadClass kind) {
  const uint64_t bits = bits_of(queue);
  if ((bits & ~told_.dormant()) != 0) return;
  for (const auto& [bit, dormant] : dormant_) {
    if ((bits & bit) == 0) continue;
    const bool other = padding_.contains(bit) || kind != dormant;
    // Under a GradScaler data and gradients may both be intended; values made of them are not.
    if (other && (kind == BadClass::kOther || dormant == BadClass::kData || padding_.contains(bit)))
      told_.confirm(bit);
  }
}

/// @return whether a rank may have received another rank's bad values in a call whose records are
/// lost.
bool NotFinite::may_have_received(uint32_t queue) {
  const RankQueue& rank = *job_.queues[queue];
  if (!rank.lacks_calls() || (told_.not_finite() & ~told_.dormant()) == 0) return false;
  lacking_.insert(rank.rank);
  told_.give(queue, kForeign, nullptr);
  return true;
}

void NotFinite::local(uint32_t queue, const LocalBad& bad) {
  if (bits_of(queue) != 0) return confirm(queue, bad.kind);
  if (may_have_received(queue)) return;
  const RankQueue& rank = *job_.queues[queue];
  const bool scaled = bad.kind == BadClass::kGradient && rank.scaled;
  Origin origin{.kind = Kind::kNan, .rank = rank.rank, .step = bad.step, .phase = bad.phase};
  if (bad.scope) origin.scope = job_.text(bad.scope);
  origin.op = job_.text(bad.op);
  origin.slot = job_.text(bad.slot);
  origin.dormant = scaled || bad.kind == BadClass::kData;
  const std::string what = bad.nan != 0 ? "NaN" : "infinity";
  origin.text = "Rank " + std::to_string(rank.rank) + " made the first " + what + " in step " +
                std::to_string(bad.step) + ": " + origin.slot + " of " +
                (!origin.scope           ? "no module"
                 : origin.scope->empty() ? "the root module"
                                         : "module " + *origin.scope) +
                ". Nothing that it had received before has one.";
  origin.evidence = {amount(bad.nan, bad.infinite, bad.count, bad.dtype) + ", record " +
                     std::to_string(bad.seq)};
  origin.evidence.insert(origin.evidence.end(), bad.inputs.begin(), bad.inputs.end());
  if (bad.kind == BadClass::kData) origin.evidence.emplace_back("the data contain it");
  origin.next = "nan";
  const std::string where = origin.scope.value_or("-") + " " + origin.op + " " + origin.slot;
  const bool is_dormant = origin.dormant;
  const uint64_t bit = told_.tell(std::move(origin), where);
  if (is_dormant && (told_.dormant() & bit) != 0) {
    dormant_[bit] = bad.kind;
    padding_.erase(bit);
  }
  told_.give(queue, bit == 0 ? kForeign : bit, nullptr);
}

void NotFinite::born_in_sent(const Member& member, const Meeting& meeting, const Value& value) {
  if (may_have_received(member.queue)) return;
  const RankQueue& rank = *job_.queues[member.queue];
  const Call& call = *member.call;
  Origin origin = origin_at(job_, Kind::kNan, meeting, call);
  origin.through.reset();
  origin.rank = rank.rank;
  origin.slot = "sent:" + std::to_string(value.index);
  const bool backward = call.phase == format::Phase::kBackward;
  const bool padding = may_have_padding(meeting.does) && rank.sees_modules;
  origin.dormant = padding || (backward && rank.scaled);
  origin.text = "Rank " + std::to_string(rank.rank) + " sent the first " +
                (value.nan ? "NaN" : "infinity") + " in step " + std::to_string(call.step) +
                " to " + meeting_text(job_, meeting) +
                ": it was made between the last recorded value, which is finite, and the call.";
  origin.evidence = {"tensor " + std::to_string(value.index) + " of " +
                     tools::counted(value.count, "element") + " (" +
                     std::string(to_string(value.dtype)) + "), record " +
                     std::to_string(value.seq) + ", " + place_text(job_, call)};
  origin.next = "nan";
  const std::string where =
      origin.scope.value_or("-") + " " + origin.op + " " + job_.text(meeting.group->name);
  const bool is_dormant = origin.dormant;
  const uint64_t bit = told_.tell(std::move(origin), where);
  if (is_dormant && (told_.dormant() & bit) != 0) {
    dormant_[bit] = backward ? BadClass::kGradient : BadClass::kOther;
    if (padding)
      padding_.insert(bit);
    else
      padding_.erase(bit);
  }
  told_.give(member.queue, bit == 0 ? kForeign : bit, nullptr);
}

void NotFinite::born_in_result(const Meeting& meeting, const Member& receiver, const Value& value) {
  Origin origin = origin_at(job_, Kind::kNan, meeting, *receiver.call);
  origin.suspects = ranks_of(meeting);
  origin.slot = "received:" + std::to_string(value.index);
  double largest = 0;
  for (const Member& member : meeting.members)
    for (const Value* sent : member.sent)
      largest = std::max({largest, std::abs(sent->low), std::abs(sent->high)});
  const bool scaled = job_.queues[receiver.queue]->scaled;
  origin.dormant = scaled && receiver.call->phase == format::Phase::kBackward;
  origin.text = "The result of " + meeting_text(job_, meeting) + " has " +
                (value.nan ? "NaN" : "infinities") +
                ", but all that its members sent is finite: the sum is too large for " +
                std::string(to_string(value.dtype)) + ", or the transport is at fault.";
  origin.evidence = {"the largest magnitude that a member sent is " + tools::number_text(largest) +
                         ", the largest number of the type " +
                         tools::number_text(format::largest_finite(value.dtype)),
                     place_text(job_, *receiver.call)};
  origin.next = "nan";
  const bool is_dormant = origin.dormant;
  const uint64_t bit = told_.tell(std::move(origin), job_.text(meeting.group->name));
  if (is_dormant && (told_.dormant() & bit) != 0) dormant_[bit] = BadClass::kGradient;
  told_.give(receiver.queue, bit == 0 ? kForeign : bit, &meeting);
}

void NotFinite::send(const Member& sender, const Meeting& meeting, uint64_t& carried) {
  if (const Value* const bad = first_bad(sender.sent); bad != nullptr) {
    if (bits_of(sender.queue) == 0) born_in_sent(sender, meeting, *bad);
    carried = told_.carried_by(sender.queue);
  } else {
    carried = told_.carried_by(sender.queue);
    if (measured(sender.sent)) carried &= ~(told_.not_finite() | kForeign);
  }
}

uint64_t NotFinite::carried_from(const Meeting& meeting) {
  uint64_t carried = 0;
  for (const Member& member : meeting.members) {
    if (!gives(meeting, member)) continue;
    uint64_t own = 0;
    send(member, meeting, own);
    carried |= own;
  }
  return carried;
}

void NotFinite::meet(const Meeting& meeting, uint64_t carried, uint64_t explained) {
  if (!is_transfer(meeting.does)) carried = carried_from(meeting);
  for (const Member& member : meeting.members)
    if (takes(meeting, member)) receive(meeting, member, carried, explained);
}

void NotFinite::receive(const Meeting& meeting, const Member& receiver, uint64_t carried,
                        uint64_t explained) {
  const uint64_t not_finite = told_.not_finite() | kForeign;
  const Value* const bad = first_bad(receiver.received);
  uint64_t given = carried & ~not_finite;
  if (bad != nullptr || !measured(receiver.received)) given |= carried & not_finite;
  told_.give(receiver.queue, given, &meeting);
  if (bad == nullptr || bits_of(receiver.queue) != 0) return;
  if ((explained & told_.carried_by(receiver.queue)) != 0) return;
  const bool all_known =
      meeting.whole && std::ranges::all_of(meeting.members, [&](const Member& member) {
        return !gives(meeting, member) ||
               (!member.sent.empty() && std::ranges::all_of(member.sent, &Value::finite));
      });
  if (all_known && (reduces(meeting.does) || meeting.does == Operation::kOther)) {
    born_in_result(meeting, receiver, *bad);
    return;
  }
  ++foreign_;
  foreign_ranks_.insert(receiver.rank);
  told_.give(receiver.queue, kForeign, nullptr);
}

void NotFinite::passed(uint32_t queue, bool finite) {
  // A step that lacks records may have had values that are not finite.
  if (finite && !job_.queues[queue]->lacks_calls()) told_.take_away(queue, bits_of(queue));
}

std::vector<std::string> NotFinite::notes() const {
  std::vector<std::string> notes;
  if (foreign_ != 0)
    notes.push_back(ranks_named({foreign_ranks_.begin(), foreign_ranks_.end()}) +
                    " received values that are not finite in " +
                    tools::counted(foreign_, "collective") +
                    " of which not all that was sent is known: they may have begun on ranks "
                    "without a trace, or behind the end of one");
  if (!lacking_.empty())
    notes.push_back(ranks_named({lacking_.begin(), lacking_.end()}) +
                    (lacking_.size() == 1 ? " has" : " have") +
                    " values that are not finite, and traces that lack records: whether they were "
                    "received before is not known");
  return notes;
}

}  // namespace convtrace::origin

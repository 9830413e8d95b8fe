#include "tools/origin/judge/trial.h"

#include <algorithm>

#include "tools/common/text.h"
#include "tools/origin/model/rank_text.h"
#include "tools/trace/model/record.h"

namespace convtrace::origin {
namespace {

constexpr uint64_t kMostCellsOnTrial = uint64_t{1} << 26;

}  // namespace

Trial::Trial(const Job& job, uint32_t first_step)
    : job_(job),
      told_(job),
      not_finite_(job, told_),
      alike_(job, told_),
      scale_(job, told_),
      replicas_(job, told_),
      cells_(job.queues.size()),
      first_step_(first_step) {}

void Trial::color(uint32_t queue, uint32_t step, CellState state) {
  if (step < first_step_) return;
  std::vector<CellState>& cells = cells_[queue];
  const uint64_t place = step - first_step_;
  if (place >= cells.size()) {
    if (cell_count_ + place - cells.size() > kMostCellsOnTrial) return;
    cell_count_ += place + 1 - cells.size();
    cells.resize(place + 1, CellState::kUnknown);
  }
  cells[place] = std::max(cells[place], state);
}

void Trial::local(uint32_t queue, const LocalBad& bad) { not_finite_.local(queue, bad); }

void Trial::send(const Member& sender, const Meeting& meeting, uint64_t& carried) {
  not_finite_.send(sender, meeting, carried);
}

void Trial::meet(const Meeting& meeting, uint64_t carried) {
  uint64_t told = 0;
  if (meeting.members.size() > 1 && alike_.judge(meeting)) {
    told |= judge_content(job_, meeting, told_);
    told |= judge_equal(job_, meeting, told_);
    told |= judge_sum(job_, meeting, told_);
    scale_.see(meeting);
  }
  not_finite_.meet(meeting, carried, told);
}

void Trial::passed(uint32_t queue, uint32_t step) {
  const auto& steps = job_.queues[queue]->steps;
  const auto counts = steps.find(step);
  if (counts == steps.end()) return;
  const bool finite = counts->second.measured != 0 && counts->second.bad == 0;
  const uint64_t received = told_.carried_by(queue) & ~told_.dormant() & ~kForeign;
  if (received != 0) {
    color(queue, step, CellState::kReceived);
  } else if (counts->second.measured != 0) {
    color(queue, step, CellState::kClean);
  }
  not_finite_.passed(queue, finite);
}

void Trial::judge_parameters(std::span<RankQueue* const> queues, bool last) {
  while (true) {
    uint32_t step = format::kNoStep;
    bool ready = true;
    for (const RankQueue* queue : queues)
      if (!queue->parameters.empty()) step = std::min(step, queue->parameters.begin()->first);
    for (const RankQueue* queue : queues)
      ready &= queue->finished || diff::is_whole(step, queue->read_step);
    if (step == format::kNoStep || (!ready && !last)) return;
    std::vector<const std::vector<ParameterSeen>*> seen;
    for (const RankQueue* queue : queues) {
      const bool has = !queue->parameters.empty() && queue->parameters.begin()->first == step;
      seen.push_back(has ? &queue->parameters.begin()->second : nullptr);
    }
    if (job_.same_hashes) replicas_.see(step, seen);
    for (RankQueue* queue : queues) queue->parameters.erase(step);
  }
}

/// @return whether a member has the result of the collective or of a later one of its group: then
/// all members took part.
bool Trial::went_on(const Meeting& meeting) const {
  return std::ranges::any_of(meeting.members, [&](const Member& member) {
    if (member.call->received_seen != 0) return true;
    const RankQueue& queue = *job_.queues[member.queue];
    return std::ranges::any_of(queue.calls, [&](const Call& call) {
      return call.group_number == member.call->group_number && !is_transfer(call.does) &&
             call.number > member.call->number && call.received_seen != 0;
    });
  });
}

/// Sets aside the ranks whose traces lack calls. @return whether there are any.
bool Trial::set_aside(std::span<const uint32_t> queues) {
  bool any = false;
  for (const uint32_t queue : queues) {
    if (!job_.queues[queue]->lacks_calls()) continue;
    ended_early_.insert(job_.queues[queue]->rank);
    any = true;
  }
  return any;
}

void Trial::waits(const Waiting& waiting) {
  const Meeting& meeting = *waiting.meeting;
  if (meeting.members.empty() || alike_.is_shifted(meeting.group_number)) return;
  if (went_on(meeting)) {
    for (const uint32_t queue : waiting.missing) ended_early_.insert(job_.queues[queue]->rank);
    return;
  }
  const bool lack = set_aside(waiting.missing);
  if (waiting.circle || waiting.other != nullptr) {
    std::vector<uint32_t> here;
    for (const Member& member : meeting.members) here.push_back(member.queue);
    if (set_aside(here) || lack) return;
    return waiting.circle ? tell_circle(waiting) : tell_elsewhere(waiting);
  }
  if (waiting.absent.empty() && !waiting.missing.empty()) {
    const std::vector<uint32_t> here = ranks_of(meeting);
    stuck_.push_back(
        ranks_named(here) + (here.size() == 1 ? " waits in " : " wait in ") +
        meeting_text(job_, meeting) + " for " + ranks_named(job_.ranks_of(waiting.missing)) +
        (waiting.missing.size() == 1 ? ", which waits" : ", which wait") + " elsewhere");
  }
  Waiting known = waiting;
  std::erase_if(known.absent, [&](uint32_t queue) {
    // A barrier has no result: at the end of the job nothing says that it was waited in.
    const bool ends_there = meeting.does == Operation::kBarrier && !job_.queues[queue]->closed &&
                            std::ranges::all_of(meeting.members, [&](const Member& member) {
                              return job_.queues[member.queue]->closed;
                            });
    if (ends_there) ended_early_.insert(job_.queues[queue]->rank);
    return ends_there || job_.queues[queue]->lacks_calls();
  });
  if (waiting.absent.size() > meeting.members.size()) {
    for (const uint32_t queue : waiting.absent) ended_early_.insert(job_.queues[queue]->rank);
    return;
  }
  if (!known.absent.empty()) tell_late(known);
}

void Trial::tell_late(const Waiting& waiting) {
  const Meeting& meeting = *waiting.meeting;
  const std::vector<uint32_t> late = job_.ranks_of(waiting.absent);
  Origin origin = origin_at(job_, Kind::kLate, meeting, meeting.first());
  origin.blame(late);
  const std::string who =
      late.size() == 1 ? "Rank " + std::to_string(late.front()) : "R" + ranks_named(late).substr(1);
  const std::vector<uint32_t> there = ranks_of(meeting);
  origin.text = who + " never came to " + meeting_text(job_, meeting) + ", which " +
                ranks_named(there) + " entered.";
  for (const uint32_t number : waiting.absent) {
    const RankQueue& queue = *job_.queues[number];
    if (origin.evidence.size() == 4) break;
    origin.evidence.push_back("the trace of rank " + std::to_string(queue.rank) + " ends in step " +
                              std::to_string(queue.read_step) +
                              (queue.closed
                                   ? ", where it was closed"
                                   : "; it was not closed: the process was killed, or hangs"));
  }
  origin.evidence.push_back("entered by " + ranks_named(there) + ": " +
                            place_text(job_, meeting.first()));
  origin.next =
      "look at what the late rank does behind its last record: an exception, the end of "
      "its data, an endless loop";
  origin.ranks = there;
  (void)told_.tell(std::move(origin), "");
}

void Trial::tell_circle(const Waiting& waiting) {
  const Meeting& meeting = *waiting.meeting;
  if (std::ranges::any_of(meeting.members,
                          [](const Member& one) { return is_transfer(one.call->does); }))
    return;
  Origin origin = origin_at(job_, Kind::kMismatch, meeting, meeting.first());
  origin.suspects = ranks_of(meeting);
  origin.text = "Ranks wait for each other: " + meeting_text(job_, meeting) +
                " is called by all its members, but some call another collective first.";
  for (const Member& member : meeting.members) {
    const RankQueue& queue = *job_.queues[member.queue];
    if (queue.position >= queue.end()) continue;
    const Call& head = queue.at(queue.position);
    if (&head == member.call || origin.evidence.size() == 4) continue;
    origin.evidence.push_back("rank " + std::to_string(member.rank) + " waits in " +
                              job_.text(head.op) + " number " + std::to_string(head.number) +
                              " of group " + job_.text(head.group) + ", " + place_text(job_, head));
  }
  if (origin.evidence.empty()) return;
  origin.next = "let all ranks call the collectives of these groups in one order";
  origin.ranks = origin.suspects;
  (void)told_.tell(std::move(origin), "circle");
}

/// Members wait for some that wait for them in another collective. Those went another way who are
/// in what the job usually calls later; else the fewer.
void Trial::tell_elsewhere(const Waiting& waiting) {
  const Meeting& meeting = *waiting.meeting;
  const Call& other = *waiting.other;
  const int order = alike_.usual_order(meeting.first(), other);
  const std::vector<uint32_t> here = job_.ranks_of(waiting.held),
                              there = job_.ranks_of(waiting.elsewhere);
  bool blames_there = here.size() > there.size();
  bool blames_here = here.size() < there.size();
  if (order != 0) {
    blames_there = order < 0;
    blames_here = order > 0;
  }
  const std::vector<uint32_t>& early = blames_here ? here : there;
  const Call& call = blames_here ? meeting.first() : other;
  Origin origin = origin_at(job_, Kind::kMismatch, meeting, call);
  origin.step = std::min(meeting.step, other.step);
  if (!blames_here && !blames_there) {
    origin.suspects = here;
    origin.suspects.insert(origin.suspects.end(), there.begin(), there.end());
  } else {
    origin.blame(early);
  }
  const std::string what = job_.text(other.op) + " number " + std::to_string(other.number) +
                           " of group " + job_.text(other.group);
  origin.text = "R" + ranks_named(there).substr(1) +
                (there.size() == 1 ? " waits in " : " wait in ") + what +
                " for ranks that wait in " + meeting_text(job_, meeting) + " for " +
                (there.size() == 1 ? "it" : "them") +
                ": a call was left out, or two were made in another order.";
  if (order != 0)
    origin.evidence.push_back("usually " + (order < 0 ? meeting_text(job_, meeting) : what) +
                              " comes first");
  origin.evidence.push_back(ranks_named(there) + ": " + place_text(job_, other));
  origin.evidence.push_back(ranks_named(here) + ": " + place_text(job_, meeting.first()));
  origin.next = "let all ranks call the collectives of these groups in one order";
  origin.ranks = here;
  origin.ranks.insert(origin.ranks.end(), there.begin(), there.end());
  (void)told_.tell(std::move(origin), "elsewhere");
}

void Trial::add_notes(OriginResult& result) const {
  for (std::string& note : not_finite_.notes()) result.notes.push_back(std::move(note));
  for (std::string& note : replicas_.notes()) result.notes.push_back(std::move(note));
  for (const auto& [what, times] : told_.doubts())
    result.notes.push_back("the results of " + tools::counted(times, "collective") + " are " +
                           what);
  const bool explained = std::ranges::any_of(result.origins, [](const Origin& origin) {
    return origin.kind == Kind::kLate || origin.kind == Kind::kMismatch;
  });
  for (size_t i = 0; i < std::min<size_t>(stuck_.size(), 8) && !explained; ++i)
    result.notes.push_back(stuck_[i] + (i == 7 && stuck_.size() > 8 ? "; others do, too" : "") +
                           ": nobody goes on from there");
  if (!ended_early_.empty())
    result.notes.push_back("the traces of " +
                           ranks_named({ended_early_.begin(), ended_early_.end()}) +
                           " end before others, or lack records: what these ranks did behind them "
                           "is not known");
}

}  // namespace convtrace::origin

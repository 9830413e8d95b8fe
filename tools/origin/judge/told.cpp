#include "tools/origin/judge/told.h"

#include <algorithm>
#include <bit>

#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

/// A hostile trace can be wrong everywhere.
constexpr size_t kMostOrigins = 1000;
constexpr size_t kMostEvidence = 12;

}  // namespace

std::vector<uint32_t> Job::ranks_of(std::span<const uint32_t> queue_numbers) const {
  std::vector<uint32_t> ranks;
  for (const uint32_t queue : queue_numbers) ranks.push_back(queues[queue]->rank);
  std::ranges::sort(ranks);
  return ranks;
}

uint64_t Told::bit_for(size_t origin) {
  if (owners_ < kBits) {
    owner_[owners_] = static_cast<uint32_t>(origin);
    return uint64_t{1} << owners_++;
  }
  // A bit that was never confirmed and that no rank carries any more can be reused.
  uint64_t used = 0;
  for (const uint64_t bits : carried_) used |= bits;
  const uint64_t free = dormant_ & ~used & ~kForeign;
  if (free == 0) return 0;
  const int number = std::countr_zero(free);
  bits_[owner_[static_cast<size_t>(number)]] = 0;
  owner_[static_cast<size_t>(number)] = static_cast<uint32_t>(origin);
  const uint64_t bit = uint64_t{1} << number;
  dormant_ &= ~bit;
  not_finite_ &= ~bit;
  return bit;
}

uint64_t Told::tell(Origin origin, const std::string& where) {
  std::ranges::sort(origin.suspects);
  std::string key(to_string(origin.kind));
  key += origin.rank ? " " + std::to_string(*origin.rank) : " " + ranks_text(origin.suspects, 64);
  key += " " + where;
  if (origin.order == 0) origin.order = stamp();
  if (const auto known = known_.find(key); known != known_.end()) {
    Origin& first = origins_[known->second];
    ++first.times;
    if (origin.step < first.step) {  // ranks are not in the same step at the same time
      origin.times = first.times;
      origin.ranks = std::move(first.ranks);
      first = std::move(origin);
    }
    return bits_[known->second];
  }
  if (origins_.size() == kMostOrigins) {
    ++left_out_;
    return 0;
  }
  if (origin.evidence.size() > kMostEvidence) origin.evidence.resize(kMostEvidence);
  const size_t number = origins_.size();
  known_.emplace(std::move(key), number);
  bits_.push_back(0);
  const uint64_t bit = bits_[number] = bit_for(number);
  if (origin.kind == Kind::kNan) not_finite_ |= bit;
  if (origin.dormant) dormant_ |= bit;
  origins_.push_back(std::move(origin));
  reached_.emplace_back();
  return bit;
}

void Told::confirm(uint64_t bits) {
  dormant_ &= ~bits;
  for (size_t i = 0; i < owners_; ++i)
    if ((bits >> i & 1) != 0) origins_[owner_[i]].dormant = false;
}

void Told::give(uint32_t queue, uint64_t bits, const Meeting* meeting) {
  uint64_t fresh = bits & ~carried_[queue];
  carried_[queue] |= bits;
  if (meeting == nullptr) return;
  for (fresh &= ~kForeign; fresh != 0; fresh &= fresh - 1) {
    const uint32_t number = owner_[static_cast<size_t>(std::countr_zero(fresh))];
    Origin& origin = origins_[number];
    const uint32_t rank = job_.queues[queue]->rank;
    if (origin.rank == rank) continue;
    std::vector<bool>& reached = reached_[number];
    reached.resize(job_.queues.size());
    if (reached[queue]) continue;
    reached[queue] = true;
    origin.ranks.push_back(rank);
    if (!origin.through) origin.through = through_of(job_, *meeting);
  }
}

std::vector<uint32_t> ranks_of(const Meeting& meeting) {
  std::vector<uint32_t> ranks;
  for (const Member& member : meeting.members) ranks.push_back(member.rank);
  std::ranges::sort(ranks);
  return ranks;
}

Through through_of(const Job& job, const Meeting& meeting) {
  const Call& call = meeting.first();
  Through through{.group = job.text(meeting.group->name),
                  .op = job.text(call.op),
                  .number = meeting.number,
                  .step = meeting.step};
  if (call.scope) through.scope = job.text(call.scope);
  return through;
}

Origin origin_at(const Job& job, Kind kind, const Meeting& meeting, const Call& call) {
  Origin origin{.kind = kind, .step = call.step, .phase = call.phase, .op = job.text(call.op)};
  if (call.scope) origin.scope = job.text(call.scope);
  origin.through = through_of(job, meeting);
  return origin;
}

std::string meeting_text(const Job& job, const Meeting& meeting) {
  std::string text = job.text(meeting.first().op) + " number " + std::to_string(meeting.number) +
                     " of group " + job.text(meeting.group->name);
  if (meeting.first().tag > 1) text += " with tag " + std::to_string(meeting.first().tag - 1);
  if (is_transfer(meeting.does) && meeting.members.size() == 2)
    text += " from rank " + std::to_string(meeting.members[0].rank) + " to rank " +
            std::to_string(meeting.members[1].rank);
  return text;
}

std::string place_text(const Job& job, const Call& call) {
  std::string text =
      "step " + std::to_string(call.step) + ", " + std::string(to_string(call.phase));
  if (call.scope) {
    const std::string scope = job.text(call.scope);
    text += scope.empty() ? ", root module" : ", module " + scope;
  }
  return text;
}

}  // namespace convtrace::origin

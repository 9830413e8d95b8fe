/// @file equal.cpp
/// unequal: results of all_reduce, all_gather and broadcast that are not the same on all members.
///
/// Why it is a fault: these operations give every member the same bits. Replicas that got others
/// part from then on.
/// Passed over: results that are not finite on all members, since the bits of a NaN mean nothing;
/// sums that differ on every member by rounding alone, where each adds in an order of its own.

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/common/text.h"
#include "tools/origin/judge/judges.h"
#include "tools/origin/model/image.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

const Value* received_at(const Member& member, size_t place) {
  return place < member.received.size() ? member.received[place] : nullptr;
}

/// @return whether all members have a value at a place that can be compared with the others'.
bool comparable(const Meeting& meeting, size_t place) {
  const Value* const first = received_at(meeting.members.front(), place);
  if (first == nullptr) return false;
  for (const Member& member : meeting.members) {
    const Value* const value = received_at(member, place);
    if (value == nullptr || value->count != first->count || value->dtype != first->dtype ||
        value->bytes != first->bytes || value->index != first->index)
      return false;
  }
  return true;
}

/// @return whether results differ by no more than the order of a sum explains.
bool by_rounding(const Meeting& meeting, const Job& job, size_t place) {
  std::vector<Image> sent;
  Image low{}, high{};
  bool begun = false;
  for (const Member& member : meeting.members) {
    const Pool<Fingerprint>& prints = job.queues[member.queue]->fingerprints;
    const Value* const value = received_at(member, place);
    if (value->fingerprint == kNone || place >= member.sent.size() ||
        member.sent[place]->fingerprint == kNone)
      return false;
    sent.push_back(image_of(prints[member.sent[place]->fingerprint]));
    const Image image = image_of(prints[value->fingerprint]);
    for (size_t i = 0; i < image.size(); ++i) {
      low[i] = begun ? std::min(low[i], image[i]) : image[i];
      high[i] = begun ? std::max(high[i], image[i]) : image[i];
    }
    begun = true;
  }
  const Value& first = *meeting.members.front().received[place];
  return norm_of(added(high, low, -1)) <= sum_tolerance(sent, high, first.dtype, first.count);
}

/// For results without a majority.
/// @return the members whose result is not the sum of the inputs, if others' results are; empty if
/// the sums decide nothing.
std::vector<size_t> not_the_sum(const Meeting& meeting, const Job& job, size_t place) {
  const bool avg = meeting.reduces == Reduction::kAvg;
  if (!reduces(meeting.does) || (!avg && meeting.reduces != Reduction::kSum)) return {};
  std::vector<Image> sent;
  Image sum{};
  for (const Member& member : meeting.members) {
    if (place >= member.sent.size() || member.sent[place]->fingerprint == kNone) return {};
    sent.push_back(
        image_of(job.queues[member.queue]->fingerprints[member.sent[place]->fingerprint]));
    sum = added(sum, sent.back(), 1);
  }
  const double factor = avg ? static_cast<double>(sent.size()) : 1;
  const Value& first = *meeting.members.front().received[place];
  const double tolerance = sum_tolerance(sent, sum, first.dtype, first.count);
  std::vector<size_t> wrong;
  std::vector<double> off;
  for (size_t i = 0; i < meeting.members.size(); ++i) {
    const Member& member = meeting.members[i];
    const Value& value = *member.received[place];
    double distance = INFINITY;
    if (value.fingerprint != kNone)
      distance = norm_of(added(
          added({}, image_of(job.queues[member.queue]->fingerprints[value.fingerprint]), factor),
          sum, -1));
    off.push_back(distance);
    if (distance > tolerance) wrong.push_back(i);
  }
  // Rounding may be as large as the fault: then the one that is much further off.
  if (wrong.empty() && off.size() == 2 && std::max(off[0], off[1]) > 3 * std::min(off[0], off[1]))
    wrong.push_back(off[0] > off[1] ? 0 : 1);
  if (wrong.size() == meeting.members.size()) wrong.clear();
  return wrong;
}

std::string distance_text(const Job& job, const Member& a, const Member& b, size_t place) {
  const Value &x = *a.received[place], &y = *b.received[place];
  if (x.fingerprint == kNone || y.fingerprint == kNone || x.l2 == 0) return "";
  const Image difference = added(image_of(job.queues[a.queue]->fingerprints[x.fingerprint]),
                                 image_of(job.queues[b.queue]->fingerprints[y.fingerprint]), -1);
  return "the difference has about " + tools::number_text(norm_of(difference) / x.l2, 3) +
         " of the norm of the result";
}

uint64_t tell(const Job& job, const Meeting& meeting, size_t place, Told& told) {
  std::map<uint64_t, std::vector<size_t>> by_hash;
  for (size_t i = 0; i < meeting.members.size(); ++i)
    by_hash[meeting.members[i].received[place]->hash].push_back(i);
  const auto larger = [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  };
  const auto& most = std::ranges::max_element(by_hash, larger)->second;
  const bool sums = reduces(meeting.does);
  if (sums && 2 * most.size() <= meeting.members.size() && by_rounding(meeting, job, place))
    return 0;
  std::vector<size_t> minority;
  for (const auto& [hash, members] : by_hash)
    if (&members != &most) minority.insert(minority.end(), members.begin(), members.end());
  bool known = 2 * most.size() > meeting.members.size();
  if (!known) {
    const std::vector<size_t> wrong = not_the_sum(meeting, job, place);
    known = !wrong.empty();
    if (known) minority = wrong;
  }
  std::vector<uint32_t> ranks;
  for (const size_t i : minority) ranks.push_back(meeting.members[i].rank);
  const Member& one = meeting.members[minority.front()];
  Origin origin = origin_at(job, Kind::kUnequal, meeting, *one.call);
  origin.slot = "received:" + std::to_string(one.received[place]->index);
  origin.blame(known ? ranks : ranks_of(meeting));
  origin.ranks = origin.suspects;
  origin.text = "The result of " + meeting_text(job, meeting) +
                " is not the same on all members: " +
                (known ? ranks_named(ranks) + " received another value than the other " +
                             std::to_string(meeting.members.size() - minority.size()) + "."
                       : "its " + std::to_string(meeting.members.size()) + " members received " +
                             std::to_string(by_hash.size()) + " values.");
  origin.evidence = {"tensor " + std::to_string(one.received[place]->index) + " of " +
                     tools::counted(one.received[place]->count, "element") + " (" +
                     std::string(to_string(one.received[place]->dtype)) + "), " +
                     place_text(job, *one.call)};
  size_t right = 0;
  while (std::ranges::find(minority, right) != minority.end()) ++right;
  const Member& other = meeting.members[right < meeting.members.size() ? right : most.front()];
  if (const std::string text = distance_text(job, other, one, place); !text.empty())
    origin.evidence.push_back(text);
  origin.next =
      "the buffer was changed while the collective ran, or the transport is at fault: "
      "compare what the members received";
  bool bad = false;
  for (const size_t i : minority) bad |= meeting.members[i].received[place]->bad;
  const uint64_t bit =
      told.tell(std::move(origin), job.text(meeting.group->name) + job.text(one.call->op));
  if (bad) told.explains_not_finite(bit);
  for (const size_t i : minority) told.give(meeting.members[i].queue, bit, nullptr);
  return bit;
}

uint64_t judge_members(const Job& job, const Meeting& meeting, Told& told) {
  uint64_t bits = 0;
  for (size_t place = 0; place < meeting.members.front().received.size(); ++place) {
    const uint64_t hash = meeting.members.front().received[place]->hash;
    const bool equal = std::ranges::all_of(meeting.members, [&](const Member& member) {
      return place < member.received.size() && member.received[place]->hash == hash;
    });
    if (equal || !comparable(meeting, place)) continue;
    const bool all_bad = std::ranges::all_of(
        meeting.members, [place](const Member& m) { return m.received[place]->bad; });
    if (!all_bad) bits |= tell(job, meeting, place, told);
  }
  return bits;
}

}  // namespace

uint64_t judge_equal(const Job& job, const Meeting& meeting, Told& told) {
  const bool broadcasts = meeting.does == Operation::kBroadcast;
  const bool gives_all =
      meeting.does == Operation::kAllReduce || meeting.does == Operation::kAllGather || broadcasts;
  if (!gives_all || !meeting.whole || !job.same_hashes || meeting.members.size() < 2) return 0;
  if (broadcasts) {
    const auto root = std::ranges::find_if(meeting.members, &Member::is_root);
    if (root == meeting.members.end() || !root->sent.empty()) return 0;  // judge_content's
    if (meeting.members.size() < 3) return 0;
    Meeting others = meeting;
    std::erase_if(others.members, [](const Member& member) { return member.is_root(); });
    return judge_members(job, others, told);
  }
  return judge_members(job, meeting, told);
}

}  // namespace convtrace::origin

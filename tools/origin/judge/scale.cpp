/// @file scale.cpp
/// scale: what one member sends into a sum of gradients has another norm, against all others', than
/// in the steps before, and keeps it.
///
/// Why it is a fault: members of a sum compute alike on data of their own. A factor that comes from
/// one step to the next and stays is a loss scale, an average or an accumulation that one rank does
/// otherwise.
/// Judged: groups of three members and more, tensors of floats of more than 16 elements, outside of
/// forward passes. What is usual is measured: how far each member's logarithm of norm by median was
/// from its own mean, over all members and earlier steps of the same call in the step.
/// Passed over: a factor of one step alone, which one batch may have; members that send zeros (a
/// rank whose data have ended); a factor that was there from the first step on.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tools/common/text.h"
#include "tools/origin/judge/judges.h"

namespace convtrace::origin {
namespace {

constexpr double kSigmas = 6;        ///< beyond what is usual
constexpr double kFinest = 0.02;     ///< of a logarithm: norms themselves are that exact
constexpr uint32_t kLeastSteps = 2;  ///< before, at this place
constexpr size_t kMostOfRank = 4096;

/// The n-th collective of a group in a step.
struct Usual {
  uint32_t op = 0, scope = 0, call = 0;
  uint64_t count = 0;
  uint32_t steps = 0;
  std::vector<double> mean{};  ///< of each member
  double squares = 0;          ///< of distances from the means
  uint64_t distances = 0;

  [[nodiscard]] double spread() const {
    const double freedom = static_cast<double>(distances);
    if (freedom < 1) return 1;
    return std::max(kFinest, std::sqrt(squares / freedom) * (1 + 4 / freedom));
  }
};

struct OfGroup {
  uint32_t step = format::kNoStep;
  size_t next = 0;
  std::vector<Usual> usual;
  std::vector<uint32_t> judged;  ///< steps
};

struct Unusual {
  uint32_t step = 0;
  size_t place = 0;
  double log_factor = 0, spread = 0;
  uint64_t stamp = 0;
  Origin origin{};  ///< its place
  double rms = 0, median = 0;
};

double rms_of(const Value& value) {
  return value.l2 / std::sqrt(static_cast<double>(std::max<uint64_t>(value.count, 1)));
}

bool may_be_gradients(const Call& call) {
  using format::Phase;
  return call.phase == Phase::kBackward || call.phase == Phase::kOptimizer ||
         call.phase == Phase::kCommunication || (call.phase == Phase::kForward && !call.scope);
}

}  // namespace

struct Scale::Impl {
  Impl(const Job& j, Told& t) : job(j), told(t) {}

  /// The first value that each member sends, where all can be compared; empty where not.
  bool take_norms(const Meeting& meeting) {
    norms.clear();
    const auto first = [](const Member& member) { return member.sent.front(); };
    if (!meeting.whole || meeting.members.size() < 3 || !reduces(meeting.does)) return false;
    if (meeting.reduces != Reduction::kSum && meeting.reduces != Reduction::kAvg) return false;
    if (!may_be_gradients(meeting.first())) return false;
    for (const Member& member : meeting.members) {
      if (member.sent.empty()) return false;
      const Value& value = *first(member);
      if (!value.measured || !value.finite || value.count <= format::kMaxWhole ||
          value.count != first(meeting.members.front())->count ||
          format::number_class(value.dtype) != format::NumberClass::kFloat)
        return false;
      norms.push_back(rms_of(value));
      if (norms.back() <= 0) return false;
    }
    return true;
  }

  void see(const Meeting& meeting) {
    if (is_transfer(meeting.does) || meeting.members.empty()) return;
    if (meeting.group_number >= groups.size()) groups.resize(meeting.group_number + size_t{1});
    OfGroup& group = groups[meeting.group_number];
    if (group.step != meeting.step) {
      group.step = meeting.step;
      group.next = 0;
    }
    const size_t place = group.next++;
    if (!take_norms(meeting)) return;
    if (group.judged.empty() || group.judged.back() < meeting.step)
      group.judged.push_back(meeting.step);
    if (place >= group.usual.size()) group.usual.resize(place + 1);
    Usual& usual = group.usual[place];
    const Call& call = meeting.first();
    const uint64_t count = meeting.members.front().sent.front()->count;
    if (usual.op != call.op.value || usual.scope != call.scope.value || usual.call != call.call ||
        usual.count != count || usual.mean.size() != norms.size()) {
      usual = {.op = call.op.value, .scope = call.scope.value, .call = call.call, .count = count};
      usual.mean.assign(norms.size(), 0);
    }
    compare(meeting, place, usual);
  }

  void compare(const Meeting& meeting, size_t place, Usual& usual) {
    std::vector<double> sorted = norms;
    std::ranges::nth_element(sorted, sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2));
    const double median = sorted[sorted.size() / 2];
    const double spread = usual.spread();
    for (size_t i = 0; i < norms.size(); ++i) {
      const double ratio = std::log(norms[i] / median);
      const double off = ratio - usual.mean[i];
      if (usual.steps >= kLeastSteps && std::abs(off) > kSigmas * spread) {
        keep(meeting, place, i, off, spread, median);
        continue;  // it is no measure of what is usual
      }
      if (usual.steps != 0) {
        usual.squares += off * off;
        ++usual.distances;
      }
      usual.mean[i] += off / (std::min<uint32_t>(usual.steps, 15) + 1);
    }
    ++usual.steps;
  }

  void keep(const Meeting& meeting, size_t place, size_t member, double off, double spread,
            double median) {
    const Member& one = meeting.members[member];
    std::vector<Unusual>& of_rank = unusual[{one.queue, meeting.group_number}];
    if (of_rank.size() >= kMostOfRank) return;
    Unusual seen{.step = meeting.step,
                 .place = place,
                 .log_factor = off,
                 .spread = spread,
                 .stamp = told.stamp(),
                 .origin = origin_at(job, Kind::kScale, meeting, *one.call),
                 .rms = norms[member],
                 .median = median};
    seen.origin.slot = "sent:" + std::to_string(one.sent.front()->index);
    seen.origin.text = meeting_text(job, meeting);
    for (const Member& other : meeting.members)
      if (other.rank != one.rank) seen.origin.ranks.push_back(other.rank);
    of_rank.push_back(std::move(seen));
  }

  /// @return whether the factor is there again in the next step, at the same place.
  static bool stays(const std::vector<Unusual>& all, const Unusual& first, uint32_t next_step) {
    return std::ranges::any_of(all, [&](const Unusual& other) {
      return other.step == next_step && other.place == first.place &&
             std::abs(other.log_factor - first.log_factor) <=
                 std::max(kSigmas * first.spread, 0.25 * std::abs(first.log_factor));
    });
  }

  void finish() {
    for (auto& [who, all] : unusual) {
      std::ranges::stable_sort(all, {},
                               [](const Unusual& one) { return std::pair(one.step, one.stamp); });
      std::set<uint32_t> steps;
      for (const Unusual& one : all) steps.insert(one.step);
      for (const Unusual& one : all) {
        const std::vector<uint32_t>& judged = groups[who.second].judged;
        const auto next = std::ranges::upper_bound(judged, one.step);
        if (next == judged.end() || !stays(all, one, *next)) continue;
        tell(who.first, one, all, steps.size());
        break;
      }
    }
  }

  void tell(uint32_t queue, const Unusual& one, const std::vector<Unusual>& all, size_t steps) {
    Origin origin = one.origin;
    origin.rank = job.queues[queue]->rank;
    origin.order = one.stamp;
    const double factor = std::exp(one.log_factor);
    origin.text = "What rank " + std::to_string(*origin.rank) + " sends to " + one.origin.text +
                  " is " + tools::number_text(factor, 3) + " times as large as before, against " +
                  "the other members.";
    origin.evidence = {"root mean square " + tools::number_text(one.rms, 4) +
                           ", median of the members " + tools::number_text(one.median, 4),
                       "in earlier steps members were within a factor of " +
                           tools::number_text(std::exp(one.spread), 4) +
                           " of their own average at this call",
                       "seen in " + tools::counted(all.size(), "collective") + " of " +
                           tools::counted(steps, "step")};
    origin.next =
        "look for what scales the loss, or averages over micro-batches, on this rank alone";
    const uint64_t bit = told.tell(std::move(origin), "");
    told.give(queue, bit, nullptr);
  }

  const Job& job;
  Told& told;
  std::vector<OfGroup> groups;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Unusual>> unusual;  ///< by queue and group
  std::vector<double> norms;
};

Scale::Scale(const Job& job, Told& told) : impl_(std::make_unique<Impl>(job, told)) {}
Scale::~Scale() = default;
void Scale::see(const Meeting& meeting) { impl_->see(meeting); }
void Scale::finish() { impl_->finish(); }

}  // namespace convtrace::origin

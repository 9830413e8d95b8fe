/// @file scale.cpp
/// scale: the tensors that one member sends into a group's sums differ in norm from the others' by
/// one factor, and did not before.
///
/// Why it is a fault: members of a sum run the same program on data of their own. A factor that
/// appears and stays is a loss scale, an average or an accumulation that one rank does differently.
/// Judged: groups of three members and more, and of two (pairs.h); tensors of floats of more than
/// 16 elements, outside of forward passes. The quantity is, for each member and step, the mean over
/// the group's calls of the logarithm of its norm relative to the members' median. Its usual
/// deviation is measured: by all members' distances from their own means in earlier steps, and by
/// the other members' distances in this one.
/// Reported: a factor that the next step has, too; in the last step of a trace, one factor for
/// several calls. From the first step on only for replicas, and only a factor of 3 and more, since
/// a batch may be divided unevenly.
/// Passed over: a factor of one step alone, which one batch may have; members that send zeros (a
/// rank whose data have ended).

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/common/text.h"
#include "tools/origin/judge/judges.h"
#include "tools/origin/judge/pairs.h"

namespace convtrace::origin {
namespace {

constexpr double kLeastFirst = 3;  ///< least factor if it exists from the first step on
constexpr size_t kLeastCalls = 2;  ///< least calls with one factor, in the last step
constexpr size_t kMostUnusual = 1 << 16;

/// A member's norms in a step, as logarithms of their ratios to the members' median.
struct Sent {
  double sum = 0, squares = 0;
  double own = 0;              ///< sum of the logarithms of its norms
  double rms = 0, median = 0;  ///< in the first call
};

/// A member's past.
struct Past {
  double mean = 0;
  uint32_t steps = 0;
};

struct OfGroup {
  uint32_t step = format::kNoStep;
  size_t calls = 0;
  std::vector<Sent> sent{};  ///< by member
  std::vector<Past> past{};
  std::vector<uint32_t> queues{};
  double squares = 0;  ///< sum over the members' distances from their means in earlier steps
  double distances = 0;
  std::vector<uint32_t> judged{};  ///< steps
  Origin place{};                  ///< the first call of the step
};

/// A member and step with an unusual norm.
struct Unusual {
  uint32_t step = 0;
  double log_factor = 0, usual = 0;
  double spread = 0;  ///< over the calls of the step
  size_t calls = 0;
  bool first = false;  ///< no step before
  double rms = 0, median = 0;
  Origin place{};
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

  /// Takes the norm of the first tensor that each member sends. @return whether all are comparable.
  bool take_norms(const Meeting& meeting) {
    norms.clear();
    const auto first = [](const Member& member) { return member.sent.front(); };
    if (!meeting.whole || meeting.members.size() < 2 || !reduces(meeting.does)) return false;
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
      if (!(norms.back() > 0)) return false;
    }
    return true;
  }

  void see(const Meeting& meeting) {
    if (!take_norms(meeting)) return;
    if (meeting.group_number >= groups.size()) groups.resize(meeting.group_number + size_t{1});
    OfGroup& group = groups[meeting.group_number];
    if (group.step != meeting.step) begin_step(meeting, group);
    std::vector<double> sorted = norms;
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle);
    // In a group of two each member is compared with the other one.
    const bool two = norms.size() == 2;
    for (size_t i = 0; i < norms.size() && i < group.sent.size(); ++i) {
      Sent& sent = group.sent[i];
      const double median = two ? norms[1 - i] : *middle;
      const double ratio = std::log(norms[i] / median);
      sent.own += std::log(norms[i]);
      sent.sum += ratio;
      sent.squares += ratio * ratio;
      if (group.calls == 0) {
        sent.rms = norms[i];
        sent.median = median;
      }
    }
    ++group.calls;
  }

  void begin_step(const Meeting& meeting, OfGroup& group) {
    end_step(meeting.group_number);
    group.step = meeting.step;
    group.calls = 0;
    group.sent.assign(norms.size(), {});
    if (group.past.size() != norms.size()) group.past.assign(norms.size(), {});
    group.queues.clear();
    for (const Member& member : meeting.members) group.queues.push_back(member.queue);
    group.place = origin_at(job, Kind::kScale, meeting, meeting.first());
    group.place.order = told.stamp();
    group.place.slot = "sent:0";
    group.place.text = meeting_text(job, meeting);
  }

  void end_step(uint32_t number) {
    OfGroup& group = groups[number];
    if (group.step == format::kNoStep || group.calls == 0) return;
    group.judged.push_back(group.step);
    const double calls = static_cast<double>(group.calls);
    if (group.sent.size() == 2) return add_pair(number);
    std::vector<double> off;
    double all = 0;
    for (size_t i = 0; i < group.sent.size(); ++i) {
      off.push_back(group.sent[i].sum / calls - group.past[i].mean);
      all += off.back() * off.back();
    }
    for (size_t i = 0; i < off.size(); ++i) {
      const double freedom = static_cast<double>(off.size() - 1) + group.distances;
      const bool first = group.past[i].steps == 0;
      const double usual =
          std::max(kFinest, std::sqrt((all - off[i] * off[i] + group.squares) / freedom) *
                                (1 + 2 / freedom));
      const bool stands_out = std::abs(off[i]) > kSigmas * usual &&
                              std::abs(off[i]) >= std::log(first ? kLeastFirst : kLeast);
      if (stands_out)
        keep(number, i, off[i], usual, first);
      else
        learn(group, i, off[i], first);
    }
    group.calls = 0;
  }

  void add_pair(uint32_t number) {
    OfGroup& group = groups[number];
    const double calls = static_cast<double>(group.calls);
    const double mean = group.sent[0].sum / calls;
    PairStep step{
        .step = group.step, .calls = static_cast<uint32_t>(group.calls), .place = group.place};
    for (const size_t i : {size_t{0}, size_t{1}}) {
      step.own[i] = group.sent[i].own / calls;
      step.rms[i] = group.sent[i].rms;
    }
    step.spread = std::sqrt(std::max(0.0, group.sent[0].squares / calls - mean * mean));
    pairs.add(number, std::move(step));
    group.calls = 0;
  }

  static void learn(OfGroup& group, size_t member, double off, bool first) {
    if (!first) {
      group.squares += off * off;
      group.distances += 1;
    }
    Past& past = group.past[member];
    past.mean += off / (std::min<uint32_t>(past.steps, 15) + 1);
    ++past.steps;
  }

  void keep(uint32_t number, size_t member, double off, double usual, bool first) {
    if (kept == kMostUnusual) return;
    ++kept;
    const OfGroup& group = groups[number];
    const Sent& sent = group.sent[member];
    const double calls = static_cast<double>(group.calls), mean = sent.sum / calls;
    unusual[{group.queues[member], number}].push_back(
        {.step = group.step,
         .log_factor = off,
         .usual = usual,
         .spread = std::sqrt(std::max(0.0, sent.squares / calls - mean * mean)),
         .calls = group.calls,
         .first = first,
         .rms = sent.rms,
         .median = sent.median,
         .place = group.place});
  }

  /// @return whether the factor is more than an effect of one batch: the next step has it, too, or
  /// all calls of the last step have it alike.
  [[nodiscard]] static bool holds(const OfGroup& group, const std::vector<Unusual>& all,
                                  size_t at) {
    const Unusual& one = all[at];
    const auto next = std::ranges::upper_bound(group.judged, one.step);
    if (next == group.judged.end())  // the last step: one factor for all calls
      return one.calls >= kLeastCalls && one.spread <= std::abs(one.log_factor) / 8;
    return at + 1 < all.size() && all[at + 1].step == *next &&
           std::abs(all[at + 1].log_factor - one.log_factor) <=
               std::max(kSigmas * one.usual, 0.25 * std::abs(one.log_factor));
  }

  void finish(const Replicas& replicas) {
    for (uint32_t number = 0; number < groups.size(); ++number) end_step(number);
    tell_pairs(replicas);
    for (const auto& [who, all] : unusual) {
      const OfGroup& group = groups[who.second];
      for (size_t i = 0; i < all.size(); ++i) {
        if (!holds(group, all, i)) continue;
        if (all[i].first && !replicas.are_replicas(group.queues)) continue;
        tell(who.first, group, all[i], all.size() - i, replicas);
        break;
      }
    }
  }

  void tell_pairs(const Replicas& replicas) {
    for (const PairFound& found : pairs.find()) {
      const PairStep& step = pairs.at(found.group, found.at);
      tell(groups[found.group].queues[found.member], groups[found.group],
           {.step = step.step,
            .log_factor = found.log_factor,
            .usual = found.usual,
            .spread = step.spread,
            .calls = step.calls,
            .rms = step.rms[found.member],
            .median = step.rms[1 - found.member],
            .place = step.place},
           found.steps, replicas);
    }
  }

  void tell(uint32_t queue, const OfGroup& group, const Unusual& one, size_t steps,
            const Replicas& replicas) {
    Origin origin = one.place;
    origin.rank = job.queues[queue]->rank;
    const std::string factor = tools::number_text(std::exp(one.log_factor), 3);
    origin.text =
        "What rank " + std::to_string(*origin.rank) + " sends to the sums of its group is " +
        factor + " times what the other members send" +
        (one.first ? ", from the first recorded step on" : ", which it was not in earlier steps") +
        "; the first is " + one.place.text + ".";
    origin.evidence = {
        "root mean square " + tools::number_text(one.rms, 4) + ", median of the members " +
            tools::number_text(one.median, 4),
        "one factor for " + tools::counted(one.calls, "call") + " of the step, within " +
            tools::percent_text(std::expm1(one.spread), 2) + "; usual differences of members are " +
            tools::percent_text(std::expm1(one.usual), 2),
        "seen in " + tools::counted(steps, "step")};
    const bool clips = replicas.clips_alone(queue, group.queues);
    if (clips)
      origin.evidence.push_back("it clips its gradients, and the other members never do");
    else if (one.first)
      origin.evidence.emplace_back("it may be meant: a batch that is divided unevenly");
    origin.next =
        clips ? "look for what makes this rank alone clip its gradients"
              : "look for what scales the loss, or averages over micro-batches, on this rank alone";
    origin.ranks = job.ranks_of(group.queues);
    const uint64_t bit = told.tell(std::move(origin), "");
    told.give(queue, bit, nullptr);
  }

  const Job& job;
  Told& told;
  std::vector<OfGroup> groups;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Unusual>> unusual;  ///< by queue and group
  size_t kept = 0;
  Pairs pairs;
  std::vector<double> norms;
};

Scale::Scale(const Job& job, Told& told) : impl_(std::make_unique<Impl>(job, told)) {}
Scale::~Scale() = default;
void Scale::see(const Meeting& meeting) { impl_->see(meeting); }
void Scale::finish(const Replicas& replicas) { impl_->finish(replicas); }

}  // namespace convtrace::origin

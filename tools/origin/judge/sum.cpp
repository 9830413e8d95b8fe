/// @file sum.cpp
/// wrong-sum: a result of all_reduce, reduce or reduce_scatter that its inputs do not give.
///
/// Why it is a fault: the sketch of a sum is the sum of the sketches, and small tensors are known
/// element by element. A difference beyond rounding (image.h) is a missing contribution, one that
/// was counted twice, or memory that was changed meanwhile.
/// Cannot tell: a sum of many members in a type of few bits, whose rounding alone is as large as
/// one contribution. A reduction over parts of tensors (reduce_scatter of one tensor) is judged
/// only by the sums of all elements, which is weaker.
/// Passed over: values that are not finite; `premul_sum`, whose factor is not recorded.

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/common/text.h"
#include "tools/origin/judge/judges.h"
#include "tools/origin/model/image.h"
#include "tools/origin/model/rank_text.h"

namespace convtrace::origin {
namespace {

/// A reduction of one tensor of each member into one result.
struct Reduced {
  std::vector<const Value*> sent;  ///< by member
  const Value* result = nullptr;
  const Member* receiver = nullptr;
};

/// The deviation of a result from its inputs.
struct Deviation {
  double size = 0, tolerance = 0, of = 0;  ///< norms
  Image difference{};
  std::vector<Image> parts{};
  bool by_sums = false;
  double signed_size = 0;  ///< if `by_sums`: result minus inputs
};

double largest_integer(format::DType dtype) {
  const bool is_signed = format::number_class(dtype) == format::NumberClass::kSigned;
  const uint32_t bits = 8 * format::element_bytes(dtype) - (is_signed ? 1 : 0);
  return std::min(std::ldexp(1.0, static_cast<int>(bits)) - 1, 0x1p53);
}

class Sums {
 public:
  Sums(const Job& job, const Meeting& meeting, Told& told)
      : job_(job), meeting_(meeting), told_(told) {}

  uint64_t judge() {
    const size_t n = meeting_.members.size();
    const size_t tensors = meeting_.members.front().sent.size();
    for (const Member& member : meeting_.members)
      if (member.sent.size() != tensors) return 0;
    if (tensors == 0) return 0;
    if (meeting_.does != Operation::kReduceScatter) {
      const Member* const receiver = receiver_of_most();
      if (receiver == nullptr || receiver->received.size() != tensors) return 0;
      for (size_t i = 0; i < tensors; ++i) look(reduced(i, *receiver, i));
    } else if (tensors == n && n > 1) {
      for (size_t to = 0; to < n; ++to)
        if (meeting_.members[to].received.size() == 1) look(reduced(to, meeting_.members[to], 0));
    } else {
      for (size_t i = 0; i < tensors; ++i) look_at_parts(i);
    }
    return bits_;
  }

 private:
  /// @return the member with the most frequent result; results that differ are reported elsewhere.
  [[nodiscard]] const Member* receiver_of_most() const {
    if (meeting_.does == Operation::kReduce) {
      const auto root = std::ranges::find_if(meeting_.members, &Member::is_root);
      return root == meeting_.members.end() ? nullptr : &*root;
    }
    std::map<uint64_t, std::pair<size_t, const Member*>> by_hash;
    const Member* most = nullptr;
    size_t most_count = 0;
    for (const Member& member : meeting_.members) {
      if (member.received.empty()) continue;
      const uint64_t hash = member.received.front()->hash;
      if (most != nullptr && by_hash.size() == 1 && by_hash.begin()->first == hash) continue;
      auto& [count, first] = by_hash[hash];
      if (count++ == 0) first = &member;
      if (count > most_count) {
        most = first;
        most_count = count;
      }
    }
    return most;
  }

  [[nodiscard]] Reduced reduced(size_t sent, const Member& receiver, size_t received) const {
    Reduced one{.sent = {}, .result = receiver.received[received], .receiver = &receiver};
    for (const Member& member : meeting_.members) one.sent.push_back(member.sent[sent]);
    return one;
  }

  void look(const Reduced& one) {
    const Value& result = *one.result;
    if (!result.measured || !result.finite || result.count == 0) return;
    for (const Value* value : one.sent)
      if (!value->measured || !value->finite || value->count != result.count ||
          value->dtype != result.dtype)
        return;
    if (meeting_.reduces == Reduction::kMax || meeting_.reduces == Reduction::kMin)
      return look_at_extremes(one);
    if (meeting_.reduces != Reduction::kSum && meeting_.reduces != Reduction::kAvg) return;
    if (format::number_class(result.dtype) == format::NumberClass::kFloat)
      return look_at_floats(one);
    if (meeting_.reduces == Reduction::kSum) look_at_integers(one);
  }

  void look_at_floats(const Reduced& one) {
    if (roundoff_of_sums(one.result->dtype) == 0 || one.result->fingerprint == kNone) return;
    Deviation deviation;
    Image sum{};
    double norms = 0;
    for (size_t i = 0; i < one.sent.size(); ++i) {
      if (one.sent[i]->fingerprint == kNone) return;
      const RankQueue& queue = *job_.queues[meeting_.members[i].queue];
      deviation.parts.push_back(image_of(queue.fingerprints[one.sent[i]->fingerprint]));
      sum = added(sum, deviation.parts.back(), 1);
      norms += one.sent[i]->l2;
    }
    const double n = static_cast<double>(one.sent.size());
    const double factor = meeting_.reduces == Reduction::kAvg ? n : 1;
    const Image result =
        image_of(job_.queues[one.receiver->queue]->fingerprints[one.result->fingerprint]);
    Image scaled{};
    scaled = added(scaled, result, factor);
    deviation.difference = added(scaled, sum, -1);
    deviation.size = norm_of(deviation.difference);
    deviation.of = norms / n;
    if (deviation.size <= 0x1p-20 * norm_of(sum)) return;  // a sketch is not better than that
    deviation.tolerance =
        sum_tolerance(deviation.parts, scaled, one.result->dtype, one.result->count);
    if (deviation.size > deviation.tolerance) tell(one, deviation);
  }

  void look_at_integers(const Reduced& one) {
    const double largest = largest_integer(one.result->dtype);
    double sum = 0, reach = 0;
    for (const Value* value : one.sent) {
      sum += value->sum;
      reach += std::max(std::abs(value->low), std::abs(value->high));
      if (std::abs(value->sum) >= 0x1p53) return;
    }
    if (reach > largest || std::abs(sum) >= 0x1p53 || one.result->dtype == format::DType::kBool)
      return;  // it may wrap around
    Deviation deviation{
        .size = std::abs(one.result->sum - sum), .tolerance = 0, .of = std::abs(sum)};
    deviation.by_sums = true;
    deviation.signed_size = one.result->sum - sum;
    if (deviation.size > 0) tell(one, deviation);
  }

  void look_at_extremes(const Reduced& one) {
    const bool max = meeting_.reduces == Reduction::kMax;
    double wanted = max ? one.sent.front()->high : one.sent.front()->low;
    for (const Value* value : one.sent)
      wanted = max ? std::max(wanted, value->high) : std::min(wanted, value->low);
    const double found = max ? one.result->high : one.result->low;
    if (found == wanted) return;
    Deviation deviation{.size = std::abs(found - wanted), .tolerance = 0, .of = std::abs(wanted)};
    deviation.by_sums = true;
    tell(one, deviation);
  }

  /// For reduce_scatter of one tensor: the parts of all members together are the sum.
  void look_at_parts(size_t place) {
    double sent = 0, magnitudes = 0, received = 0;
    uint64_t count = 0;
    const Value* first = nullptr;
    for (const Member& member : meeting_.members) {
      if (place >= member.received.size()) return;
      const Value &in = *member.sent[place], &out = *member.received[place];
      if (first == nullptr) first = &in;
      if (!in.finite || !out.finite || in.dtype != first->dtype || out.dtype != first->dtype ||
          in.count != first->count)
        return;
      sent += in.sum;
      magnitudes += in.l1;
      received += out.sum;
      count += out.count;
    }
    const bool judged = meeting_.reduces == Reduction::kSum || meeting_.reduces == Reduction::kAvg;
    const double u = roundoff_of_sums(first->dtype),
                 n = static_cast<double>(meeting_.members.size());
    if (!judged || count != first->count || u == 0) return;
    if (meeting_.reduces == Reduction::kAvg) received *= n;
    Deviation deviation{.size = std::abs(received - sent), .tolerance = 0, .of = magnitudes / n};
    // The statistics themselves are exact to 1e-6 of the magnitudes (FORMAT.md 6.4, variant).
    deviation.tolerance = (n * u + 0x1p-19) * magnitudes;
    deviation.by_sums = true;
    deviation.signed_size = received - sent;
    for (const double factor : {n, 1 / n})  // an average taken in place
      if (std::abs(received * factor - sent) <= deviation.tolerance * std::max(1.0, factor) &&
          deviation.size > deviation.tolerance)
        return doubt();
    if (deviation.size <= deviation.tolerance) return;
    Reduced one{.sent = {},
                .result = meeting_.members.front().received[place],
                .receiver = &meeting_.members.front()};
    for (const Member& member : meeting_.members) one.sent.push_back(member.sent[place]);
    tell(one, deviation);
  }

  /// If only sums are known, names the member whose sum the result lacks, or whose part of the
  /// result is larger than all inputs. @return false if there is no such member.
  bool explain_sums(const Reduced& one, const Deviation& deviation, Origin& origin) const {
    const Member *lacking = nullptr, *large = nullptr;
    size_t fitting = 0, beyond = 0;
    double reach = 0;
    for (const Value* value : one.sent)
      reach += std::max(std::abs(value->low), std::abs(value->high));
    if (meeting_.reduces == Reduction::kAvg) reach /= static_cast<double>(one.sent.size());
    for (size_t i = 0; i < meeting_.members.size(); ++i) {
      const Member& member = meeting_.members[i];
      if (std::abs(deviation.signed_size + one.sent[i]->sum) <= deviation.tolerance) {
        ++fitting;
        lacking = &member;
      }
      const bool parts = meeting_.does == Operation::kReduceScatter && !member.received.empty();
      if (!parts) continue;
      const Value& got = *member.received.front();
      if (std::max(std::abs(got.low), std::abs(got.high)) > 1.01 * reach) {
        ++beyond;
        large = &member;
      }
    }
    const bool is_large = beyond == 1;
    if (!is_large && (fitting != 1 || deviation.tolerance == 0)) return false;
    origin.rank = is_large ? large->rank : lacking->rank;
    const std::string rank = std::to_string(*origin.rank);
    origin.text +=
        is_large ? " The part that rank " + rank + " received is larger than all that was sent."
                 : " It lacks the contribution of rank " + rank + ".";
    return true;
  }

  /// @return whether an unexplained result may have been overwritten before it was recorded, as by
  /// an average in place. A deviation in a few elements alone is not such a write.
  [[nodiscard]] static bool is_rewritten(const Deviation& deviation) {
    constexpr ptrdiff_t kFew = 4;
    const auto touched = std::ranges::count_if(deviation.difference, [&](double bucket) {
      return std::abs(bucket) > deviation.tolerance;
    });
    return !deviation.parts.empty() && touched > kFew;
  }

  /// Names the member whose contribution explains the difference, if one does.
  /// @return false: nothing does.
  bool explain(const Reduced& one, const Deviation& deviation, Origin& origin) const {
    constexpr double kExplained = 0.35, kApart = 0.5;
    const size_t n = deviation.parts.size();
    if (deviation.by_sums && explain_sums(one, deviation, origin)) return true;
    Fit fit;
    if (n != 0) fit = fit_of(deviation.difference, deviation.parts);
    const double rest = fit.rest * deviation.size;
    const bool known = n > 1 && (fit.rest < kExplained || rest <= deviation.tolerance) &&
                       fit.rest < kApart * fit.second_rest;
    if (!known) {
      origin.suspects = ranks_of(meeting_);
      origin.text += " No single member's contribution explains the difference.";
      return false;
    }
    const Member& member = meeting_.members[fit.member];
    const double share = 1 + fit.factor;
    origin.rank = member.rank;
    const std::string whose = "the contribution of rank " + std::to_string(member.rank);
    const double fuzz = std::max(0.1, 2 * rest / std::max(one.sent[fit.member]->l2, 1e-300));
    if (std::abs(share) < std::min(fuzz, 0.3)) {
      origin.text += " It lacks " + whose + ".";
    } else if (std::abs(share - 2) < std::min(fuzz, 0.3)) {
      origin.text += " It has " + whose + " twice.";
    } else {
      origin.text += " It has " + whose + " times " + tools::number_text(share, 3) + ".";
    }
    origin.evidence.push_back("the difference is " + tools::number_text(fit.factor, 3) +
                              " times what rank " + std::to_string(member.rank) +
                              " sent, but for " + tools::percent_text(fit.rest));
    return true;
  }

  void doubt() {
    told_.doubt(
        "not those of their inputs, and no member explains the difference: they may have "
        "been written again before they were read");
  }

  void tell(const Reduced& one, const Deviation& deviation) {
    const Call& call = *one.receiver->call;
    Origin origin = origin_at(job_, Kind::kWrongSum, meeting_, call);
    origin.slot = "received:" + std::to_string(one.result->index);
    origin.text = "The result of " + meeting_text(job_, meeting_) +
                  " is not what its members sent (" + job_.text(call.reduction) + ").";
    origin.evidence.push_back("result and inputs are " + tools::number_text(deviation.size, 3) +
                              " apart" + (deviation.by_sums ? " by their sums or extremes" : "") +
                              ", rounding explains " + tools::number_text(deviation.tolerance, 3) +
                              "; a member's share has " + tools::number_text(deviation.of, 3));
    if (!explain(one, deviation, origin) && is_rewritten(deviation)) return doubt();
    origin.evidence.push_back("tensor " + std::to_string(one.result->index) + " of " +
                              tools::counted(one.result->count, "element") + " (" +
                              std::string(to_string(one.result->dtype)) + ") of " +
                              tools::counted(meeting_.members.size(), "member") + ", " +
                              place_text(job_, call));
    origin.next =
        "look at what writes the buffer between the call and its end, and at the transport";
    for (const Member& member : meeting_.members)
      if (member.rank != origin.rank && meeting_.does != Operation::kReduce)
        origin.ranks.push_back(member.rank);
    const uint64_t bit =
        told_.tell(std::move(origin), job_.text(meeting_.group->name) + job_.text(call.op));
    for (const Member& member : meeting_.members)
      if (!member.received.empty()) told_.give(member.queue, bit, nullptr);
    bits_ |= bit;
  }

  const Job& job_;
  const Meeting& meeting_;
  Told& told_;
  uint64_t bits_ = 0;
};

}  // namespace

uint64_t judge_sum(const Job& job, const Meeting& meeting, Told& told) {
  if (!meeting.whole || !reduces(meeting.does) || meeting.members.size() < 2) return 0;
  return Sums(job, meeting, told).judge();
}

}  // namespace convtrace::origin

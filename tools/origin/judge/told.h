#pragma once
/// @file told.h
/// The origins that were found, and which ranks have received each.
///
/// Up to 63 origins have a bit at a time, which follows the ranks' data: `carried` is a set of
/// such bits. An origin that is found again at its place is counted, and not reported again.
///
/// Threads:  one.

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "format/model/definitions.h"
#include "tools/origin/join/meeting.h"
#include "tools/origin/model/origin.h"

namespace convtrace::origin {

/// The data of the job that all judges use.
struct Job {
  const format::Definitions& names;
  std::span<const RankQueue* const> queues;
  const Groups& groups;
  bool same_hashes = true;  ///< the hashes of all traces are of one version
  bool new_hashes = true;   ///< they can be concatenated

  [[nodiscard]] std::string text(format::StringId id) const { return std::string(names.text(id)); }
  [[nodiscard]] std::vector<uint32_t> ranks_of(std::span<const uint32_t> queue_numbers) const;
};

class Told {
 public:
  explicit Told(const Job& job) : job_(job), carried_(job.queues.size()) {}

  /// @param where  with kind and ranks the identity of an origin: equal origins are reported once.
  /// @return the origin's bit, 0 if there is none left.
  uint64_t tell(Origin origin, const std::string& where);
  /// @return the next number of the order in which origins are found.
  uint64_t stamp() { return ++order_; }
  /// The bits of origins that explain values that are not finite.
  [[nodiscard]] uint64_t not_finite() const { return not_finite_; }
  void explains_not_finite(uint64_t bit) { not_finite_ |= bit; }
  [[nodiscard]] uint64_t dormant() const { return dormant_; }
  /// Marks origins as faults, since a later value shows that they were not intended.
  void confirm(uint64_t bits);

  /// Counts a suspicious value that may have been read after its memory had changed.
  void doubt(const std::string& what) { ++doubts_[what]; }
  [[nodiscard]] const std::map<std::string, uint64_t>& doubts() const { return doubts_; }

  /// Notes that the destination of a transfer receives in another order than its source sends.
  void see_out_of_order(const Meeting& transfer) { out_of_order_.insert(pair_of(transfer)); }
  /// @return whether see_out_of_order() was called for the same pair in this group.
  [[nodiscard]] bool is_out_of_order(const Meeting& transfer) const {
    return out_of_order_.contains(pair_of(transfer));
  }

  [[nodiscard]] uint64_t carried_by(uint32_t queue) const { return carried_[queue]; }
  /// @param meeting  the collective that delivered it; null: it began on this rank.
  void give(uint32_t queue, uint64_t bits, const Meeting* meeting);
  void take_away(uint32_t queue, uint64_t bits) { carried_[queue] &= ~bits; }

  [[nodiscard]] std::vector<Origin>& origins() { return origins_; }
  [[nodiscard]] uint64_t left_out() const { return left_out_; }

 private:
  using Pair = std::tuple<uint32_t, uint32_t, uint32_t>;  ///< group, source, destination
  [[nodiscard]] static Pair pair_of(const Meeting& transfer) {
    return {transfer.group_number, transfer.members[0].queue, transfer.members[1].queue};
  }
  [[nodiscard]] uint64_t bit_for(size_t origin);

  static constexpr size_t kBits = 63;
  static constexpr uint32_t kNobody = 0xFFFFFFFF;

  const Job& job_;
  std::vector<Origin> origins_;
  std::vector<uint64_t> bits_;  ///< bit by origin
  std::map<std::string, size_t> known_;
  std::map<std::string, uint64_t> doubts_;
  std::set<Pair> out_of_order_;
  std::array<uint32_t, kBits> owner_{};
  size_t owners_ = 0;
  std::vector<uint64_t> carried_;           ///< by queue
  std::vector<std::vector<bool>> reached_;  ///< by origin and queue
  uint64_t not_finite_ = 0, dormant_ = 0, left_out_ = 0, order_ = 0;
};

/// The bit of values that are not finite and came from a rank that is not known.
inline constexpr uint64_t kForeign = uint64_t{1} << 63;

/// @return an origin at a collective, with its place filled in from a member's call.
[[nodiscard]] Origin origin_at(const Job& job, Kind kind, const Meeting& meeting, const Call& call);
[[nodiscard]] Through through_of(const Job& job, const Meeting& meeting);
/// @return "all_reduce number 41 of group c10d:0"; not escaped.
[[nodiscard]] std::string meeting_text(const Job& job, const Meeting& meeting);
/// @return ", in step 7, backward, module h.0"; not escaped.
[[nodiscard]] std::string place_text(const Job& job, const Call& call);
[[nodiscard]] std::vector<uint32_t> ranks_of(const Meeting& meeting);

}  // namespace convtrace::origin

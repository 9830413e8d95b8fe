#pragma once
/// @file not_finite.h
/// nan: the first values that are not finite, and how they went from rank to rank.
///
/// A rank that made such a value, or received one, has the bit of its origin; what is not finite
/// there later is a consequence, until a whole step of the rank was finite.
///
/// A value that may be meant is dormant: NaN in data may stand for what is missing, infinite
/// gradients under a GradScaler make it lower its scale, flat buffers may have uninitialised
/// padding. It is reported when a value that cannot be intended follows from it.
///
/// Threads:  one.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/origin/judge/told.h"

namespace convtrace::origin {

class NotFinite {
 public:
  NotFinite(const Job& job, Told& told);

  void local(uint32_t queue, const LocalBad& bad);
  void send(const Member& sender, const Meeting& meeting, uint64_t& carried);
  /// @param explained  bits of the origins that were reported at this collective.
  void meet(const Meeting& meeting, uint64_t carried, uint64_t explained);
  /// @param finite  whether the step had values, and all of them were.
  void passed(uint32_t queue, bool finite);
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  [[nodiscard]] uint64_t bits_of(uint32_t queue) const {
    return told_.carried_by(queue) & (told_.not_finite() | kForeign);
  }
  void born_in_sent(const Member& member, const Meeting& meeting, const Value& value);
  void born_in_result(const Meeting& meeting, const Member& receiver, const Value& value);
  void receive(const Meeting& meeting, const Member& receiver, uint64_t carried,
               uint64_t explained);
  [[nodiscard]] uint64_t carried_from(const Meeting& meeting);
  void confirm(uint32_t queue, BadClass kind);
  bool may_have_received(uint32_t queue);

  const Job& job_;
  Told& told_;
  std::map<uint64_t, BadClass> dormant_;  ///< class by bit: a value of another class confirms it
  std::set<uint64_t> padding_;            ///< bits of dormant origins that may be padding
  uint64_t foreign_ = 0;                  ///< receptions from ranks that are not known
  std::set<uint32_t> foreign_ranks_, lacking_;
};

}  // namespace convtrace::origin

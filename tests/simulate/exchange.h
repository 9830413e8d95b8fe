#pragma once
/// @file exchange.h
/// Where calls of collectives meet, as they do in reality: by group and number, whatever they are.
///
/// A call that all members have made is complete; one of other members' that is of another
/// operation, type, size or root never is, and who waits for it waits for ever. What is sent waits
/// for nobody.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "tests/simulate/rank.h"

namespace convtrace::simulate {

class Exchange {
 public:
  /// @param done  told of each call that is complete, in order of ranks, with what is received.
  using Done = std::function<void(const Call&, const std::vector<Value>&)>;
  Exchange(World& world, Done done);

  /// @return the number of such a call, if it were made now.
  [[nodiscard]] uint64_t number_of(const Call& call) const;
  /// Makes the call.
  void make(const Call& call);

 private:
  using Lane = std::tuple<uint32_t, uint32_t, uint32_t>;  ///< group, source, destination
  struct Mail {
    std::deque<Value> sent;
    std::deque<Call> waiting;
    uint64_t sent_count = 0, received_count = 0;
  };

  static Lane lane_of(const Call& call);
  void transfer(const Call& call);
  void meet(std::vector<Call>& calls);
  [[nodiscard]] Value sum_of(const std::vector<Call>& calls, bool is_mean);
  [[nodiscard]] Value joined(const std::vector<Call>& calls);
  [[nodiscard]] std::vector<Value> received_by(const Call& call, const std::vector<Call>& calls,
                                               const Value& common);

  World& world_;
  Done done_;
  std::vector<std::vector<uint64_t>> counts_;                ///< of each group, of each member
  std::vector<std::map<uint64_t, std::vector<Call>>> open_;  ///< of each group, by number
  std::map<Lane, Mail> mail_;
};

}  // namespace convtrace::simulate

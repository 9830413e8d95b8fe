#pragma once
/// @file reductions.h
/// Finds replicas that stop reducing their gradients: all gradients were equal in earlier steps,
/// none is now, and each rank calls fewer sums over ranks.
///
/// Place:    replicas.cpp.
/// Threads:  one.

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/origin/judge/replica_class.h"
#include "tools/origin/model/origin.h"

namespace convtrace::origin {

class Reductions {
 public:
  void begin_step() { sums_.clear(); }
  /// Counts a rank's call of a sum over ranks in this step.
  void take_sum(uint32_t queue) { ++sums_[queue]; }
  /// Call it for each class of the step after the comparison of its gradients.
  void see(const Class& of, uint32_t step);
  [[nodiscard]] bool have_ended(const Class& of) const;
  /// Text, evidence and advice. @param ranks, unlike  in words
  void describe_end(const Class& of, uint32_t step, const std::string& ranks,
                    const std::string& unlike, Origin& origin) const;

 private:
  /// The last step with equal gradients, and the sums in it, by place of the queue in its class.
  struct Last {
    uint32_t step = 0;
    std::vector<uint32_t> sums{};
  };

  [[nodiscard]] std::vector<uint32_t> sums_of(const Class& of) const;

  std::unordered_map<uint32_t, uint32_t> sums_;  ///< by queue
  std::map<std::vector<uint32_t>, Last> last_;   ///< by queues of a class
};

}  // namespace convtrace::origin

#pragma once
/// @file writes.h
/// written: ranks reduced a gradient, which is equal on them, and one of them wrote to it more
/// often than the others. It may have changed the gradient that it sent.
///
/// Why it is a fault: ranks that run one program write to a gradient equally often, and did so in
/// earlier steps. A write between a rank's backward pass and the reduction changes the sum.
/// Judged: a gradient of ranks without DDP, if other gradients of the step are written equally
/// often, from some step to the last, in two steps at least. DDP reduces in the backward pass. It
/// is unknown whether the write came before the reduction, and whether it changed a value. Passed
/// over: counts that were never equal, as for a part that some ranks do not use.
///
/// Place:    judge/replicas.cpp.
/// Threads:  one.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace convtrace::origin {

class Writes {
 public:
  /// The step from which on some ranks wrote to a gradient more often, and for how many steps.
  struct More {
    std::vector<uint32_t> queues{}, all{};
    uint32_t writes = 0, others = 0;  ///< in the first step
    uint32_t first = 0, steps = 0;
    size_t alike = 0;  ///< gradients of that step that were written equally often

    /// @return whether the counts differ, and at most half of the ranks have the larger one.
    [[nodiscard]] bool stands_out() const {
      return !queues.empty() && 2 * queues.size() <= all.size();
    }
  };

  struct Count {
    uint32_t queue = 0, writes = 0;
  };

  /// Takes a gradient that is equal on ranks.
  void take(uint32_t key, std::span<const Count> counts);
  /// Call it after all gradients of a step.
  void end_step(uint32_t step);
  /// @return by key, the differences that lasted to the end.
  [[nodiscard]] std::map<uint32_t, More> found() const;

 private:
  /// @return the writes of a step: PyTorch's count continues if gradients are set to zero in place.
  [[nodiscard]] std::vector<Count> since_last(uint32_t key, std::span<const Count> counts);

  std::map<uint32_t, std::map<uint32_t, uint32_t>> last_;  ///< counts by key and queue
  std::map<uint32_t, More> step_;                          ///< this step's counts, by key
  std::map<uint32_t, More> keys_;  ///< for keys that were written equally often before
};

}  // namespace convtrace::origin

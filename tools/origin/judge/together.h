#pragma once
/// @file together.h
/// Checks of ranks with equal parameters that no collective proves: updates of a model under DDP
/// should stay equal, buffers without a broadcast should, too, and data should differ.
///
/// Only the first is reported as an origin, since DDP exists to keep replicas equal. Buffers of
/// each rank's own data, and ranks that share a batch, are common in correct programs and become
/// notes.
/// Threads:  one.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tools/origin/judge/buffers.h"
#include "tools/origin/judge/replica_class.h"
#include "tools/origin/judge/told.h"

namespace convtrace::origin {

class Together {
 public:
  Together(const Job& job, Told& told) : job_(job), told_(told) {}

  void begin_step(uint32_t step);
  /// kWrapped, kShared and kData.
  void take(uint32_t queue, const ParameterSeen& seen);
  /// A buffer that was recorded in this step. @param seen  by queue.
  void take_buffer(format::StringId scope, format::StringId name,
                   std::span<const Buffers::Seen> seen);
  /// The ranks of a class whose parameters stayed equal in this step.
  /// @param scopes  of parameters that did. @param whole  all of these ranks' did.
  void trained(const Class& of, const std::set<uint32_t>& scopes, bool whole);

  /// @return whether the model is under DDP on all of these.
  [[nodiscard]] bool is_wrapped(std::span<const uint32_t> queues) const;
  /// Adds an origin for ranks that DDP should have kept equal; finish() reports it unless they
  /// become equal.
  /// @param key  of the parameter in the text.
  void suspect(Origin origin, const std::vector<uint32_t>& queues, uint32_t key);
  /// Updates of a parameter. @param equal  on all ranks that have it.
  void see_updates(uint32_t key, bool equal);
  /// Call after the last step.
  void finish();
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  struct Suspect {
    Origin origin;
    std::vector<uint32_t> queues{};
    uint32_t key = 0;
    bool equal_again = false;
  };
  struct Apart {
    uint32_t first_step = 0, last_step = 0, steps = 0;
    std::vector<uint32_t> queues{};
  };
  struct Data {
    uint32_t steps = 0;
    std::vector<uint64_t> mix{};   ///< by place of the queue
    std::set<uint64_t> batches{};  ///< the distinct batches of the first queue
  };
  /// A buffer that is not equal on its ranks. It remains listed in steps that do not write it.
  struct Unlike {
    uint32_t since = 0;  ///< a step
    std::vector<Buffers::Seen> seen{};
  };

  void see_data(const Class& of);
  [[nodiscard]] std::vector<std::string> notes_of_data() const;

  const Job& job_;
  Told& told_;
  uint32_t step_ = 0;
  std::set<uint32_t> wrapped_, sharing_;                    ///< queues; the latter in this step
  std::map<uint32_t, uint64_t> step_data_;                  ///< by queue
  std::map<std::pair<uint32_t, uint32_t>, Unlike> unlike_;  ///< by scope and name
  std::vector<Suspect> suspects_;
  std::map<std::pair<uint32_t, uint32_t>, Apart> apart_;  ///< by scope and name
  std::map<std::vector<uint32_t>, Data> data_;            ///< by the queues of a class
};

}  // namespace convtrace::origin

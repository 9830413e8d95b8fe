#pragma once
/// @file step_sums.h
/// Sums over what a training step recorded, so that two traces' equal steps are known without
/// reading them.
///
/// Place:    event_encoder.cpp computes them; reader/step_sums.h gives them to who compares traces.
/// Why:      sums mod 2^64 of hashes do not depend on order or chunks, and nothing enters them that
///           differs between two runs that do the same: no address, time, stream, id or sequence.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.7.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::format {

namespace wire {
struct StepSumsT;
}

/// Of one step, or of the part of it that is in one chunk.
struct StepSums {
  uint32_t step = kNoStep;
  uint64_t launches = 0;  ///< number of Launch events
  uint64_t values = 0;    ///< number of TensorStats
  uint64_t key_sum = 0;   ///< over the stable keys of both
  /// Over (stable key, hash) of TensorStats, and over facts but for locations.
  uint64_t value_sum = 0;
  constexpr bool operator==(const StepSums&) const = default;
};

/// @pre of the same step
constexpr StepSums& operator+=(StepSums& to, const StepSums& from) {
  to.launches += from.launches;
  to.values += from.values;
  to.key_sum += from.key_sum;
  to.value_sum += from.value_sum;
  return to;
}

/// Sorts by step and joins the sums of equal steps.
void merge(std::vector<StepSums>& sums);

/// @return them as EVENTS and SUMS payloads hold them; nothing when there are none.
[[nodiscard]] std::unique_ptr<wire::StepSumsT> pack(std::span<const StepSums> sums);

/// Sums up the events of a trace in the order in which they are written.
class StepSummer {
 public:
  /// @param definitions  of the events' ids; must outlive this.
  explicit StepSummer(const Definitions& definitions) : definitions_(definitions) {}

  /// @param signature  number of what all launches of equal keys have in common: 0, 1, 2, ... in
  /// the order of the first ones since clear(). So a key is computed once.
  void add(const Launch& event, uint32_t signature);
  void add(const TensorStats& event);
  void add(const Fact& event);

  /// @return the sums of what was added since the last clear(), ascending by step.
  [[nodiscard]] const std::vector<StepSums>& sums();

  /// Starts a new chunk. Occurrences count on.
  void clear() {
    sums_.clear();
    launch_keys_.clear();
  }

 private:
  /// Counts how often a key occurred since the step changed. Bounded: the keys beyond the limit all
  /// count as first ones.
  class Occurrences {
   public:
    static constexpr size_t kMaxKeys = 1u << 15;
    void restart();
    /// @return how often `key` was given before.
    uint32_t next(uint64_t key);

   private:
    struct Entry {
      uint64_t key = 0;
      uint32_t epoch = 0;  ///< other than epoch_: free
      uint32_t count = 0;
    };
    void grow();
    std::vector<Entry> entries_{4096};
    size_t used_ = 0;
    uint32_t epoch_ = 1;
  };

  StepSums& sums_of(uint32_t step);
  /// The key with its occurrence.
  uint64_t occurrence_of(uint64_t key, uint32_t step);
  uint64_t text_hash(StringId id);
  uint64_t family_hash(KernelId id);
  uint64_t key_of(const Launch& event);

  const Definitions& definitions_;
  std::vector<uint64_t> text_hashes_, family_hashes_;  ///< by id; 0: not computed yet
  std::vector<uint64_t> launch_keys_;                  ///< by signature
  std::vector<StepSums> sums_;
  size_t last_ = 0;  ///< in sums_, of the last event
  Occurrences occurrences_;
  uint32_t step_ = kNoStep;
};

}  // namespace convtrace::format

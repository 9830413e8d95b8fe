#pragma once
/// @file step_sums.h
/// Sums over the records of a training step. They show which steps of two traces are equal without
/// reading the steps.
///
/// Place:    event_encoder.cpp computes them; reader/step_sums.h reads them for comparisons.
/// Why:      sums of hashes mod 2^64 do not depend on order or on chunk boundaries. They contain
///           nothing that differs between runs that do the same: no address, time, stream, id or
///           sequence number.
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

/// The sums of one step, or of its part in one chunk.
struct StepSums {
  uint32_t step = kNoStep;
  uint64_t launches = 0;  ///< number of Launch events
  uint64_t values = 0;    ///< number of TensorStats
  uint64_t key_sum = 0;   ///< sum of the stable keys of both
  /// Sum over (stable key, hash) of each TensorStats, and over facts except locations.
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

/// Sorts by step and adds up the sums of equal steps.
void merge(std::vector<StepSums>& sums);

/// @return the sums in the form of EVENTS and SUMS payloads; nothing if there are none.
[[nodiscard]] std::unique_ptr<wire::StepSumsT> pack(std::span<const StepSums> sums);

/// Computes the sums of a trace's events, in the order in which they are written.
class StepSummer {
 public:
  /// @param definitions  contains the events' ids; must outlive this.
  explicit StepSummer(const Definitions& definitions) : definitions_(definitions) {}

  /// @param signature  a number for everything that launches with equal keys share: 0, 1, 2, ... in
  /// order of first use since clear(). So each key is computed once.
  void add(const Launch& event, uint32_t signature);
  void add(const TensorStats& event);
  void add(const Fact& event);

  /// @return the sums of the events since the last clear(), ascending by step.
  [[nodiscard]] const std::vector<StepSums>& sums();

  /// Starts a new chunk. Occurrences are not reset.
  void clear() {
    sums_.clear();
    launch_keys_.clear();
  }

 private:
  /// Counts the occurrences of each key within a step. Bounded: every occurrence of a key beyond
  /// the limit counts as the first.
  class Occurrences {
   public:
    static constexpr size_t kMaxKeys = 1u << 15;
    void restart();
    /// @return the number of earlier occurrences of `key`.
    uint32_t next(uint64_t key);

   private:
    struct Entry {
      uint64_t key = 0;
      uint32_t epoch = 0;  ///< different from epoch_: the entry is free
      uint32_t count = 0;
    };
    void grow();
    std::vector<Entry> entries_{4096};
    size_t used_ = 0;
    uint32_t epoch_ = 1;
  };

  StepSums& sums_of(uint32_t step);
  /// A hash of the key with its occurrence.
  uint64_t occurrence_of(uint64_t key, uint32_t step);
  uint64_t text_hash(StringId id);
  uint64_t family_hash(KernelId id);
  uint64_t key_of(const Launch& event);

  const Definitions& definitions_;
  std::vector<uint64_t> text_hashes_, family_hashes_;  ///< by id; 0: not computed yet
  std::vector<uint64_t> launch_keys_;                  ///< by signature
  std::vector<StepSums> sums_;
  size_t last_ = 0;  ///< index in sums_ of the last event's step
  Occurrences occurrences_;
  uint32_t step_ = kNoStep;
};

}  // namespace convtrace::format

#pragma once
/// @file flat_buckets.h
/// Finds gradients that were copied out of a flat buffer before an all_reduce of it was waited for.
///
/// Criterion: a sum over several ranks is on its way in one tensor, which is waited for before the
/// optimizer takes the gradients. Gradients that it takes, one behind the other in the order of their
/// records, have together as many elements as that tensor, and sums, sums of magnitudes and of squares,
/// and a largest magnitude that are those of what this rank sent, divided by the number of ranks. So
/// they were made from the tensor as it was before the others' parts came. It must hold in two steps,
/// since a scheme that adds the others' parts later begins with such a step.
///
/// Passed over: what was received is a multiple of what was sent, as on ranks with equal data; gradients
/// that are what was sent itself, since a program may sum them up to look at them alone; types of 16
/// bits, whose rounding hides the sums.
///
/// Place:    flight_judge.h. Costs nothing where no sum is on its way.
/// Threads:  one.

#include <cstdint>
#include <optional>
#include <vector>

#include "format/findings/common/recent.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

class FlatBuckets {
 public:
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostGradients = 4096;

  struct Found {
    format::Op call;  ///< of the collective's tensor
    format::EventHeader header;
    format::Place place;
    format::StringId slot;  ///< the first of the gradients, of `header` and `place`
    uint64_t gradients = 0, ranks = 0;
  };

  /// @param definitions  of the trace; outlive this.
  explicit FlatBuckets(const format::Definitions& definitions) : definitions_(definitions) {}

  void see(const format::Collective& event);
  /// A tensor of a collective.
  void see(const format::TensorStats& event);
  /// A collective that the program has to wait for has been given a tensor that it writes.
  void begins(const format::Op& call);
  /// A gradient that the optimizer takes, or before it is clipped.
  void take(const format::TensorStats& gradient, bool unclipped);
  /// An optimizer has updated a parameter. @return what its gradients show.
  [[nodiscard]] std::optional<Found> updated();
  void forget();

 private:
  struct Sums {
    uint64_t count = 0;
    double sum = 0, l1 = 0, squares = 0, amax = 0;
  };
  struct Bucket {
    format::Op call;
    format::DType dtype;
    uint64_t collective = 0, ranks = 0;
    Sums sent, received;
    bool complete = false;
  };
  struct Gradient {
    format::EventHeader header;
    format::Place place;
    format::StringId slot;
    format::DType dtype;
    Sums sums;
  };

  [[nodiscard]] static Sums sums_of(const format::TensorStats& event);
  [[nodiscard]] static bool are_alike(const Sums& a, const Sums& b, double factor,
                                      double tolerance);
  [[nodiscard]] static bool is_multiple(const Bucket& bucket);
  [[nodiscard]] static std::optional<Found> find(const Bucket& bucket,
                                                 const std::vector<Gradient>& gradients,
                                                 size_t& compared);

  const format::Definitions& definitions_;
  Recent<uint64_t> ranks_;                   ///< by id of a call that sums: its number of ranks
  std::optional<format::TensorStats> sent_;  ///< the last tensor that was sent, without its arrays
  std::vector<Bucket> buckets_;              ///< since the last update
  std::vector<Gradient> gradients_, unclipped_;
  std::optional<uint32_t> seen_in_;  ///< the first step in which gradients were those of one rank
};

}  // namespace convtrace::judge

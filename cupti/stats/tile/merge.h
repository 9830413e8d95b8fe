#pragma once
/// @file merge.h
/// How consecutive stretches of a tensor become one: tiles a group, groups the tensor.
///
/// Sums are added by the tree of combine_threads(). The sum of squared deviations from the common
/// mean takes two rounds, and one division: the mean first, then what each stretch adds to it. So no
/// digit is lost however far the stretches' means are from each other.
///
/// Place:    compute.cpp and the kernel's host replay; a device block gives each word of the parts a thread.
/// Source:   T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance" (1983),
///           two-pass algorithm.

#include <cstdint>

#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// The mean of several stretches, from the mean of one of them that has values.
class CommonMean {
 public:
  /// @param origin  of the first stretch that has values; of any, if none has.
  CONVTRACE_HD explicit CommonMean(const Moments& origin) : origin_(origin) {}

  /// @return the contribution of a range to the first round.
  [[nodiscard]] CONVTRACE_HD double share(const Moments& part) const {
    return mul(part.n, distance(part));
  }
  /// @param shares  of all stretches. @param n  values of all.
  CONVTRACE_HD void set(double shares, double n) { mean_ = n == 0 ? 0 : div(shares, n); }

  /// @return the contribution of a range to the second round: its squared deviations from the mean.
  [[nodiscard]] CONVTRACE_HD double m2(const Moments& part) const {
    const double off = sub(distance(part), mean_);
    return part.n == 0 ? 0 : fma(mul(off, off), part.n, part.m2);
  }
  [[nodiscard]] CONVTRACE_HD Moments moments(double n, double m2) const {
    return {n, origin_.shift, origin_.shift_low, add(origin_.offset, mean_), m2};
  }

 private:
  [[nodiscard]] CONVTRACE_HD double distance(const Moments& part) const {
    if (part.n == 0) return 0;
    const double shifts =
        add(sub(part.shift, origin_.shift), sub(part.shift_low, origin_.shift_low));
    return add(shifts, sub(part.offset, origin_.offset));
  }

  Moments origin_;
  double mean_ = 0;  ///< less the origin's
};

/// @param part  `part(i)` gives the Partial of stretch i. @return the first that has values.
template <typename PartAt>
CONVTRACE_HD uint32_t first_with_values(uint32_t count, PartAt part) {
  uint32_t first = 0;
  while (first + 1 < count && part(first).moments.n == 0) ++first;
  return first;
}

/// @param parts  `count` consecutive stretches, 1 to kThreads; overwritten.
inline Partial merge_parts(Partial* parts, uint32_t count) {
  if (count == 1) return parts[0];
  Moments moments[kThreads];
  for (uint32_t i = 0; i < count; ++i) moments[i] = parts[i].moments;
  const auto sum = [](double a, double b) { return add(a, b); };
  CommonMean mean(
      moments[first_with_values(count, [&](uint32_t i) -> const Partial& { return parts[i]; })]);
  combine_threads(
      parts, [](const Partial& a, const Partial& b) { return merge(a, b); }, count);
  const auto n = static_cast<double>(parts[0].counts.finite());
  double values[kThreads];
  for (uint32_t i = 0; i < count; ++i) values[i] = mean.share(moments[i]);
  combine_threads(values, sum, count);
  mean.set(values[0], n);
  for (uint32_t i = 0; i < count; ++i) values[i] = mean.m2(moments[i]);
  combine_threads(values, sum, count);
  parts[0].moments = mean.moments(n, values[0]);
  return parts[0];
}

}  // namespace convtrace::stats

#pragma once
/// @file reference.h
/// Statistics by the book, to hold the real ones against: every element decoded from its fields
/// with ldexp, sums in 113-bit floating point, nothing shared with cupti/stats/.

#include <cstdint>
#include <span>
#include <vector>

#include "cupti/stats/tile/tensor_view.h"
#include "format/model/stats.h"

namespace convtrace::stats::test {

/// A real element as a person would describe it.
struct Decoded {
  enum class Kind { kFinite, kInf, kNan } kind = Kind::kFinite;
  bool negative = false;
  bool subnormal = false;
  bool largest = false;   ///< largest finite magnitude of a float, extreme of an integer
  long double value = 0;  ///< 64-bit significand: exact for every type
};

[[nodiscard]] Decoded decode(format::DType real_dtype, uint64_t bits);

/// Raw bits of all real numbers in row-major order: two of a byte of f4e2m1fn, the lower half first.
[[nodiscard]] std::vector<uint64_t> logical_elements(const TensorView& view);

/// Everything but the hash. mean and std are rounded from 113-bit results.
[[nodiscard]] format::Stats reference_stats(const TensorView& view);

/// Sum of magnitudes over count: what the error of a mean is measured against.
[[nodiscard]] double mean_magnitude(const TensorView& view);

}  // namespace convtrace::stats::test

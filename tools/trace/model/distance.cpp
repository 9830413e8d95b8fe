#include "tools/trace/model/distance.h"

#include <algorithm>
#include <cmath>

namespace convtrace::diff {

using format::DType;
using format::Sketch;

double sketched_distance(const Sketch& a, const Sketch& b) {
  // Buckets are scaled by powers of two, which is exact and cannot overflow for f64 tensors.
  const int exponent = std::max(a.exponent, b.exponent);
  const double scale_a = std::ldexp(1.0, a.exponent - exponent);
  const double scale_b = std::ldexp(1.0, b.exponent - exponent);
  double sum = 0;
  for (size_t i = 0; i < Sketch::kBuckets; ++i) {
    const double difference =
        static_cast<double>(a.bucket[i]) * scale_a - static_cast<double>(b.bucket[i]) * scale_b;
    sum += difference * difference;
  }
  return std::ldexp(std::sqrt(sum), exponent);
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kC128: return 0x1p-53;
    case DType::kF32:
    case DType::kC64: return 0x1p-24;
    case DType::kF16: return 0x1p-11;
    case DType::kBF16: return 0x1p-8;
    case DType::kF8E4M3FN: return 0x1p-4;
    case DType::kF8E5M2: return 0x1p-3;
    case DType::kF4E2M1FN: return 0x1p-2;
    case DType::kF8E8M0FNU: return 0x1p-1;
    default: return 0;
  }
}

}  // namespace convtrace::diff

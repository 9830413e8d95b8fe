#pragma once
/// @file arith.h
/// Operations that mean the same on the host and on a device: each rounds once, to nearest, and
/// no compiler may fuse or split it.
///
/// Place:    every header of cupti/stats/; compiled by the host compiler and by nvcc.
/// Source:   IEEE 754-2019 section 5; CUDA C++ Programming Guide, "Double-Precision Intrinsics".
///           The host side is built with -ffp-contract=off.

#include <cstdint>

#if defined(__CUDACC__)
#define CONVTRACE_HD __host__ __device__ __forceinline__
#define CONVTRACE_HD_COLD static __host__ __device__ __noinline__
#else
#define CONVTRACE_HD_COLD inline
#define CONVTRACE_HD inline __attribute__((always_inline))
#endif

/// In front of a loop, for a device's compiler alone: all of its turns one behind the other, or small
/// code.
#if defined(__CUDA_ARCH__)
#define CONVTRACE_UNROLLED _Pragma("unroll")
#define CONVTRACE_ROLLED _Pragma("unroll 1")
#else
#define CONVTRACE_UNROLLED
#define CONVTRACE_ROLLED
#endif

namespace convtrace::stats {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

CONVTRACE_HD double add(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

CONVTRACE_HD double sub(double a, double b) { return add(a, -b); }

CONVTRACE_HD double mul(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

CONVTRACE_HD double fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

/// Correctly rounded on both sides, and only used where tiles are merged, never per element.
CONVTRACE_HD double div(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}

/// The same in f32, subnormals included: nothing here is compiled with flushing to zero.
CONVTRACE_HD float add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

CONVTRACE_HD float sub(float a, float b) { return add(a, -b); }

CONVTRACE_HD float mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

CONVTRACE_HD float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

CONVTRACE_HD float magnitude(float a) {
#if defined(__CUDA_ARCH__)
  return __builtin_fabsf(a);  // part of the operation that takes it
#else
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, a) & 0x7FFFFFFF);
#endif
}

CONVTRACE_HD double magnitude(double a) {
#if defined(__CUDA_ARCH__)
  return __builtin_fabs(a);
#else
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, a) & 0x7FFFFFFFFFFFFFFF);
#endif
}

template <typename T>
CONVTRACE_HD T lesser(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
CONVTRACE_HD T greater(T a, T b) {
  return b > a ? b : a;
}

/// @return the same, which the compiler keeps in a register: nvcc would compute it anew each time
/// it is used.
CONVTRACE_HD uint64_t kept(uint64_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+l"(value));
#endif
  return value;
}

}  // namespace convtrace::stats

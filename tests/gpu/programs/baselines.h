#pragma once
/// @file baselines.h
/// What gpu_stats_bench compares with. The buffers of a sum fit the first number of bytes asked for
/// and fewer.
///
/// Errors: not 0.

#include <cstddef>

extern "C" {
int baseline_sum_f32(const void* data, size_t bytes, void* stream);
int baseline_sum_f64(const void* data, size_t bytes, void* stream);
int baseline_sum_i32(const void* data, size_t bytes, void* stream);
int baseline_nothing(void* stream);
int baseline_wait(unsigned long long nanoseconds, void* stream);
}

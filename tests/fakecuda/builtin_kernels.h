#pragma once
/// @file builtin_kernels.h
/// Host versions of convtrace's own kernels, because the engine loads a real fatbin, whose code the
/// fake driver cannot run.

#include <span>

#include "tests/fakecuda/fakecuda.h"

namespace fakecuda {

/// @return the kernels of convtrace's embedded fatbin if `image` is one, else none.
std::span<const fakecuda_kernel> builtin_kernels(const void* image);

}  // namespace fakecuda

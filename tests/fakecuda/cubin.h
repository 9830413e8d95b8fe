#pragma once
/// @file cubin.h
/// A cubin that describes the parameters of a module's kernels and holds no code, for CUPTI's
/// module callback.

#include <string>
#include <vector>

#include "tests/fakecuda/driver.h"

namespace fakecuda {

[[nodiscard]] std::string make_cubin(const std::vector<const CUfunc_st*>& functions);

}  // namespace fakecuda

#pragma once
/// @file checks.h
/// The checks of memory that a training writes twice: by two owners, or in a recomputation. Each
/// file says why its check proves a fault and where it is silent.

#include <memory>

#include "tools/check/model/check.h"

namespace convtrace::check {

std::unique_ptr<Check> make_shared_memory();
std::unique_ptr<Check> make_reused_output();
std::unique_ptr<Check> make_common_gradients();  ///< reused-output
std::unique_ptr<Check> make_kept_gradient();     ///< stale-gradient
std::unique_ptr<Check> make_kept_sum();          ///< gradients-add-up
std::unique_ptr<Check> make_recomputed_buffer();

}  // namespace convtrace::check

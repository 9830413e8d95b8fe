#pragma once
/// @file checks.h
/// The checks of values: of what modules compute, gradients and parameters. Each file says why its
/// check proves a fault and where it is silent.

#include <memory>

#include "tools/check/model/check.h"

namespace convtrace::check {

std::unique_ptr<Check> make_not_repeatable();
std::unique_ptr<Check> make_dropout_mask();  ///< not-repeatable
std::unique_ptr<Check> make_stale_gradient();
std::unique_ptr<Check> make_dropped_write();
std::unique_ptr<Check> make_stale_region();
std::unique_ptr<Check> make_gradient_flow();  ///< no-gradient, no-motion, optimizer-of-others
std::unique_ptr<Check> make_moved_without_gradient();
std::unique_ptr<Check> make_births();         ///< nan
std::unique_ptr<Check> make_range_of_type();  ///< saturated, underflow
std::unique_ptr<Check> make_norm_growth();
std::unique_ptr<Check> make_infinite_moment();
std::unique_ptr<Check> make_tied_parted();

}  // namespace convtrace::check

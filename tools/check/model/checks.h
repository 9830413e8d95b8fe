#pragma once
/// @file checks.h
/// The makers of all checks. Each file says why its check proves a fault and where it is silent.

#include <memory>

#include "tools/check/model/check.h"

namespace convtrace::check {

// values/: what modules compute, gradients and parameters.
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

// training/: how a program trains: modes, data, schedules.
std::unique_ptr<Check> make_mode();
std::unique_ptr<Check> make_never_in_training();  ///< mode
std::unique_ptr<Check> make_same_batch();
std::unique_ptr<Check> make_labels();  ///< no-labels, padding
std::unique_ptr<Check> make_input_scale();
std::unique_ptr<Check> make_loss_scale();
std::unique_ptr<Check> make_learning_rate();
std::unique_ptr<Check> make_weight_decay();
std::unique_ptr<Check> make_clipping();  ///< clip-after-step, clipping
std::unique_ptr<Check> make_two_steps();
std::unique_ptr<Check> make_gradients_add_up();
std::unique_ptr<Check> make_added_twice();
std::unique_ptr<Check> make_accumulation_scale();
std::unique_ptr<Check> make_hook_twice();

// memory/: memory that a training writes twice: by two owners, or in a recomputation.
std::unique_ptr<Check> make_shared_memory();
std::unique_ptr<Check> make_reused_output();
std::unique_ptr<Check> make_common_gradients();  ///< reused-output
std::unique_ptr<Check> make_kept_gradient();     ///< stale-gradient
std::unique_ptr<Check> make_kept_sum();          ///< gradients-add-up
std::unique_ptr<Check> make_recomputed_buffer();

}  // namespace convtrace::check

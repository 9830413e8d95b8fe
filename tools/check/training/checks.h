#pragma once
/// @file checks.h
/// The checks of how a program trains: modes, data, schedules. Each file says why its check proves
/// a fault and where it is silent.

#include <memory>

#include "tools/check/model/check.h"

namespace convtrace::check {

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

}  // namespace convtrace::check

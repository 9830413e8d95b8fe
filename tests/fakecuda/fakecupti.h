#pragma once
/// @file fakecupti.h
/// What the two halves of the fake CUPTI know of each other.

#include <cuda.h>

#include "tests/fakecuda/hook.h"

#define FAKECUPTI_EXPORT extern "C" __attribute__((visibility("default")))

namespace fakecuda {

/// Asks the driver to tell of its calls as long as somebody wants to know: a subscriber, or whoever
/// has enabled kernel activity.
void follow_driver();

/// Whether kernel activity is enabled. That takes no subscriber, and is nobody's in particular.
bool records_kernels();
void record_kernel(const HookCall& call);
void end_activity();

}  // namespace fakecuda

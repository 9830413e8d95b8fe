#pragma once
/// @file fakecupti.h
/// The interface between the two halves of the fake CUPTI.

#include <cuda.h>

#include "tests/fakecuda/hook.h"

#define FAKECUPTI_EXPORT extern "C" __attribute__((visibility("default")))

namespace fakecuda {

/// Makes the driver report its calls as long as they are needed: by a subscriber, or because kernel
/// activity is enabled.
void follow_driver();

/// Whether kernel activity is enabled, which needs no subscriber.
bool records_kernels();
void record_kernel(const HookCall& call);
void end_activity();

}  // namespace fakecuda

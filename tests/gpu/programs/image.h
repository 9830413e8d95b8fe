#pragma once
/// @file image.h
/// The module of kernels.cu, in the form that the driver at hand takes.

namespace convtrace::gpu {

/// @param device_name as cuDeviceGetName says it; a fake device cannot run machine code.
/// @return what cuModuleLoadData takes; static storage.
const void* kernel_image(const char* device_name);

}  // namespace convtrace::gpu

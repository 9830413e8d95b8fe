#pragma once
/// @file api.h
/// Tables of the driver's and CUPTI's functions that convtrace calls. They are filled from the
/// libraries that the host process has loaded, or with fakes in tests. No other file looks up
/// symbols of these libraries.
///
/// Threads:  filled once, immutable afterwards.
/// Errors:   an optional function that the library lacks is null; without a required one the table
///           is unavailable.

#include <cuda.h>
#include <cupti.h>

#include <string>

#include "format/base/status.h"

namespace convtrace::cupti {

/// X(name in the table, prototype taken from cuda.h, symbol, required).
#define CONVTRACE_DRIVER_API(X)                                                                   \
  X(driver_get_version, cuDriverGetVersion, "cuDriverGetVersion", true)                           \
  X(get_error_name, cuGetErrorName, "cuGetErrorName", true)                                       \
  X(ctx_get_current, cuCtxGetCurrent, "cuCtxGetCurrent", true)                                    \
  X(ctx_get_id, cuCtxGetId, "cuCtxGetId", false)                                                  \
  X(ctx_push_current, cuCtxPushCurrent, "cuCtxPushCurrent_v2", true)                              \
  X(ctx_pop_current, cuCtxPopCurrent, "cuCtxPopCurrent_v2", true)                                 \
  X(ctx_get_device, cuCtxGetDevice, "cuCtxGetDevice", true)                                       \
  X(device_get_attribute, cuDeviceGetAttribute, "cuDeviceGetAttribute", true)                     \
  X(device_get_name, cuDeviceGetName, "cuDeviceGetName", true)                                    \
  X(module_load_data, cuModuleLoadData, "cuModuleLoadData", true)                                 \
  X(module_get_function, cuModuleGetFunction, "cuModuleGetFunction", true)                        \
  X(launch_kernel, cuLaunchKernel, "cuLaunchKernel", true)                                        \
  X(mem_alloc, cuMemAlloc, "cuMemAlloc_v2", true)                                                 \
  X(mem_free, cuMemFree, "cuMemFree_v2", true)                                                    \
  X(mem_host_register, cuMemHostRegister, "cuMemHostRegister_v2", true)                           \
  X(mem_host_alloc, cuMemHostAlloc, "cuMemHostAlloc", false)                                      \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", true) \
  X(memset_d8_async, cuMemsetD8Async, "cuMemsetD8Async", true)                                    \
  X(memset_d32_async, cuMemsetD32Async, "cuMemsetD32Async", false)                                \
  X(mem_get_info, cuMemGetInfo, "cuMemGetInfo_v2", false)                                         \
  X(pointer_get_attributes, cuPointerGetAttributes, "cuPointerGetAttributes", false)              \
  X(ctx_synchronize, cuCtxSynchronize, "cuCtxSynchronize", false)                                 \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", true)                           \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", true)                           \
  X(event_create, cuEventCreate, "cuEventCreate", true)                                           \
  X(event_record, cuEventRecord, "cuEventRecord", true)                                           \
  X(event_query, cuEventQuery, "cuEventQuery", true)                                              \
  X(stream_create, cuStreamCreate, "cuStreamCreate", true)                                        \
  X(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize", true)                         \
  X(stream_destroy, cuStreamDestroy, "cuStreamDestroy_v2", true)                                  \
  X(stream_get_id, cuStreamGetId, "cuStreamGetId", true)                                          \
  X(stream_is_capturing, cuStreamIsCapturing, "cuStreamIsCapturing", true)                        \
  X(stream_get_capture_info, cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v3", false)          \
  X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode,                       \
    "cuThreadExchangeStreamCaptureMode", true)                                                    \
  X(func_get_param_info, cuFuncGetParamInfo, "cuFuncGetParamInfo", false)                         \
  X(kernel_get_param_info, cuKernelGetParamInfo, "cuKernelGetParamInfo", false)                   \
  X(func_get_name, cuFuncGetName, "cuFuncGetName", false)                                         \
  X(kernel_get_name, cuKernelGetName, "cuKernelGetName", false)                                   \
  X(stream_get_ctx, cuStreamGetCtx, "cuStreamGetCtx", true)                                       \
  X(graph_get_nodes, cuGraphGetNodes, "cuGraphGetNodes", false)                                   \
  X(graph_node_get_type, cuGraphNodeGetType, "cuGraphNodeGetType", false)                         \
  X(graph_kernel_node_get_params, cuGraphKernelNodeGetParams, "cuGraphKernelNodeGetParams_v2",    \
    false)                                                                                        \
  X(graph_child_graph_node_get_graph, cuGraphChildGraphNodeGetGraph,                              \
    "cuGraphChildGraphNodeGetGraph", false)

struct DriverApi {
#define CONVTRACE_X(member, prototype, symbol, required) decltype(&::prototype) member = nullptr;
  CONVTRACE_DRIVER_API(CONVTRACE_X)
#undef CONVTRACE_X
};

#define CONVTRACE_CUPTI_API(X)                  \
  X(get_version, cuptiGetVersion, true)         \
  X(subscribe, cuptiSubscribe, true)            \
  X(subscribe_v2, cuptiSubscribe_v2, false)     \
  X(unsubscribe, cuptiUnsubscribe, true)        \
  X(enable_callback, cuptiEnableCallback, true) \
  X(get_device_id, cuptiGetDeviceId, false)     \
  X(get_result_string, cuptiGetResultString, true)

struct CuptiApi {
#define CONVTRACE_X(member, prototype, required) decltype(&::prototype) member = nullptr;
  CONVTRACE_CUPTI_API(CONVTRACE_X)
#undef CONVTRACE_X
};

/// Fills `api` from libcuda.so.1 if the process has loaded it, bypassing convtrace's own wrappers.
/// Never loads the library.
/// @return kNotFound: not loaded; kUnavailable: too old (site: the function it lacks).
[[nodiscard]] Status load_driver_api(DriverApi& api) noexcept;

/// Fills `api` from the library at `path` if that is not empty, else from CUPTI of CUDA 12 or 13,
/// by soname. Order of preference: not newer than the driver (CUPTI refuses an older driver);
/// loaded by the process already; the newer version.
/// @param driver_version  as cuDriverGetVersion gives it.
/// @param[out] found  the path of the library, for META; on failure, the names that were tried.
[[nodiscard]] Status load_cupti_api(const std::string& path, int driver_version, CuptiApi& api,
                                    std::string& found) noexcept;

}  // namespace convtrace::cupti

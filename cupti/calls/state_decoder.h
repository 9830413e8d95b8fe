#pragma once
/// @file state_decoder.h
/// Decodes the driver calls that change the meaning of handles, streams and tensor maps: functions
/// found and unloaded, stream capture begun and ended, tensor maps encoded.
///
/// Place:    fed with the parameter structs that CUPTI delivers (generated_cuda_meta.h), after the
///           call succeeded.
/// Threads:  pure functions.

#include <cuda.h>

#include <cstdint>

namespace convtrace::cupti {

/// A launch takes a CUfunction or a CUkernel; the cuFunc* queries take a CUfunction only.
enum class HandleKind : uint8_t { kUnknown, kFunction, kKernel };

struct HandleChange {
  HandleKind kind = HandleKind::kUnknown;
  /// Array of `count` handles; null: all handles of `owner` are invalid now.
  const void* handles = nullptr;
  uint32_t count = 0;
  const void* owner = nullptr;  ///< module, library, or (kFunction of a kernel) the kernel
  const char* name = nullptr;   ///< if one handle was asked for by name
};

struct CaptureChange {
  CUstream stream = nullptr;
  bool begins = false;
};

/// A tensor map: an opaque descriptor of a tensor, which a kernel takes instead of an address.
struct TensorMapChange {
  const void* map = nullptr;  ///< sizeof(CUtensorMap) bytes, as the call has filled them
  uint64_t address = 0;
};

HandleChange decode_cuModuleGetFunction(const void* params) noexcept;
HandleChange decode_cuModuleEnumerateFunctions(const void* params) noexcept;
HandleChange decode_cuModuleUnload(const void* params) noexcept;
HandleChange decode_cuLibraryGetModule(const void* params) noexcept;
HandleChange decode_cuLibraryGetKernel(const void* params) noexcept;
HandleChange decode_cuLibraryEnumerateKernels(const void* params) noexcept;
HandleChange decode_cuLibraryUnload(const void* params) noexcept;
HandleChange decode_cuKernelGetFunction(const void* params) noexcept;

CaptureChange decode_cuStreamBeginCapture(const void* params) noexcept;
CaptureChange decode_cuStreamBeginCaptureToGraph(const void* params) noexcept;
CaptureChange decode_cuStreamEndCapture(const void* params) noexcept;

TensorMapChange decode_cuTensorMapEncodeTiled(const void* params) noexcept;
TensorMapChange decode_cuTensorMapEncodeIm2col(const void* params) noexcept;
TensorMapChange decode_cuTensorMapEncodeIm2colWide(const void* params) noexcept;
TensorMapChange decode_cuTensorMapReplaceAddress(const void* params) noexcept;

}  // namespace convtrace::cupti

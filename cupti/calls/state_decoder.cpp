#include "cupti/calls/state_decoder.h"

#include <cupti.h>

#include <bit>

namespace convtrace::cupti {
namespace {

template <typename Params>
const Params& as(const void* params) {
  return *static_cast<const Params*>(params);
}

template <typename Params>
TensorMapChange tensor_map(const void* params) {
  const auto& p = as<Params>(params);
  return {p.tensorMap, std::bit_cast<uintptr_t>(p.globalAddress)};
}

}  // namespace

HandleChange decode_cuModuleGetFunction(const void* params) noexcept {
  const auto& p = as<cuModuleGetFunction_params>(params);
  return {HandleKind::kFunction, p.hfunc, 1, p.hmod, p.name};
}

HandleChange decode_cuModuleEnumerateFunctions(const void* params) noexcept {
  const auto& p = as<cuModuleEnumerateFunctions_params>(params);
  return {HandleKind::kFunction, p.functions, p.numFunctions, p.mod};
}

HandleChange decode_cuModuleUnload(const void* params) noexcept {
  return {HandleKind::kFunction, nullptr, 0, as<cuModuleUnload_params>(params).hmod};
}

/// No launch takes a module. Functions found in this one are forgotten with the library.
HandleChange decode_cuLibraryGetModule(const void* params) noexcept {
  const auto& p = as<cuLibraryGetModule_params>(params);
  return {HandleKind::kUnknown, p.pMod, 1, p.library};
}

HandleChange decode_cuLibraryGetKernel(const void* params) noexcept {
  const auto& p = as<cuLibraryGetKernel_params>(params);
  return {HandleKind::kKernel, p.pKernel, 1, p.library, p.name};
}

HandleChange decode_cuLibraryEnumerateKernels(const void* params) noexcept {
  const auto& p = as<cuLibraryEnumerateKernels_params>(params);
  return {HandleKind::kKernel, p.kernels, p.numKernels, p.lib};
}

HandleChange decode_cuLibraryUnload(const void* params) noexcept {
  return {HandleKind::kKernel, nullptr, 0, as<cuLibraryUnload_params>(params).library};
}

HandleChange decode_cuKernelGetFunction(const void* params) noexcept {
  const auto& p = as<cuKernelGetFunction_params>(params);
  return {HandleKind::kFunction, p.pFunc, 1, p.kernel};
}

CaptureChange decode_cuStreamBeginCapture(const void* params) noexcept {
  return {as<cuStreamBeginCapture_v2_params>(params).hStream, true};
}

CaptureChange decode_cuStreamBeginCaptureToGraph(const void* params) noexcept {
  return {as<cuStreamBeginCaptureToGraph_params>(params).hStream, true};
}

CaptureChange decode_cuStreamEndCapture(const void* params) noexcept {
  return {as<cuStreamEndCapture_params>(params).hStream, false};
}

TensorMapChange decode_cuTensorMapEncodeTiled(const void* params) noexcept {
  return tensor_map<cuTensorMapEncodeTiled_params>(params);
}

TensorMapChange decode_cuTensorMapEncodeIm2col(const void* params) noexcept {
  return tensor_map<cuTensorMapEncodeIm2col_params>(params);
}

TensorMapChange decode_cuTensorMapEncodeIm2colWide(const void* params) noexcept {
  return tensor_map<cuTensorMapEncodeIm2colWide_params>(params);
}

TensorMapChange decode_cuTensorMapReplaceAddress(const void* params) noexcept {
  return tensor_map<cuTensorMapReplaceAddress_params>(params);
}

}  // namespace convtrace::cupti

#include "cupti/state_decoder.h"

#include <cupti.h>

namespace convtrace::cupti {
namespace {

template <typename Params>
const Params& as(const void* params) {
  return *static_cast<const Params*>(params);
}

}  // namespace

HandleChange decode_cuModuleGetFunction(const void* params) noexcept {
  const auto& p = as<cuModuleGetFunction_params>(params);
  return {HandleKind::kFunction, p.hfunc, 1, p.hmod};
}

HandleChange decode_cuModuleEnumerateFunctions(const void* params) noexcept {
  const auto& p = as<cuModuleEnumerateFunctions_params>(params);
  return {HandleKind::kFunction, p.functions, p.numFunctions, p.mod};
}

HandleChange decode_cuModuleUnload(const void* params) noexcept {
  return {HandleKind::kFunction, nullptr, 0, as<cuModuleUnload_params>(params).hmod};
}

HandleChange decode_cuLibraryGetKernel(const void* params) noexcept {
  const auto& p = as<cuLibraryGetKernel_params>(params);
  return {HandleKind::kKernel, p.pKernel, 1, p.library};
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

}  // namespace convtrace::cupti

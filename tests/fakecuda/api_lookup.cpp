/// cuGetProcAddress and error texts.

#include <dlfcn.h>

#include <string>

#include "cupti/elf_symbols.h"
#include "tests/fakecuda/driver.h"

namespace {

/// Our own functions, not those that another preloaded library has put before them.
void* own_symbol(const std::string& name) {
  static void* const self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return convtrace::cupti::find_own_symbol(self, name.c_str());
}

/// The newest version that the fake has; real drivers also look at the version asked for.
void* newest(const std::string& name, bool per_thread) {
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    for (const char* twin : {"_ptsz", "_ptds"}) {
      if (!per_thread) break;
      if (void* found = own_symbol(name + version + twin)) return found;
    }
    if (void* found = own_symbol(name + version)) return found;
  }
  return nullptr;
}

constexpr int kVersionOfV2 = 12000;  // cuGetProcAddress_v2 answers to its plain name from here on

}  // namespace

FAKECUDA_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                             cuuint64_t flags,
                                             CUdriverProcAddressQueryResult* status) {
  std::string name = symbol;
  // From CUDA 12 on this name means the function with flags, without a version in its own name.
  if (name == "cuGraphInstantiate") name = "cuGraphInstantiateWithFlags";
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  if (name == "cuGetProcAddress") {
    *function = own_symbol(version >= kVersionOfV2 ? "cuGetProcAddress_v2" : name);
  } else {
    *function = newest(name, per_thread);
  }
  const bool found = *function != nullptr;
  if (status != nullptr)
    *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
FAKECUDA_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                                          cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

FAKECUDA_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

#define FAKECUDA_ERRORS(X)                 \
  X(CUDA_SUCCESS)                          \
  X(CUDA_ERROR_INVALID_VALUE)              \
  X(CUDA_ERROR_OUT_OF_MEMORY)              \
  X(CUDA_ERROR_NOT_INITIALIZED)            \
  X(CUDA_ERROR_DEINITIALIZED)              \
  X(CUDA_ERROR_NO_DEVICE)                  \
  X(CUDA_ERROR_INVALID_DEVICE)             \
  X(CUDA_ERROR_INVALID_IMAGE)              \
  X(CUDA_ERROR_INVALID_CONTEXT)            \
  X(CUDA_ERROR_INVALID_HANDLE)             \
  X(CUDA_ERROR_ILLEGAL_STATE)              \
  X(CUDA_ERROR_NOT_FOUND)                  \
  X(CUDA_ERROR_ILLEGAL_ADDRESS)            \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)

FAKECUDA_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = nullptr;
#define FAKECUDA_X(code) \
  if (error == code) *name = #code;
  FAKECUDA_ERRORS(FAKECUDA_X)
#undef FAKECUDA_X
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  return cuGetErrorName(error, text);
}

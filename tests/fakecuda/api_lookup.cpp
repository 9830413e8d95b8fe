/// cuGetProcAddress and error texts.

#include <dlfcn.h>

#include <algorithm>
#include <string_view>

#include "cupti/driver/elf_symbols.h"
#include "tests/fakecuda/driver.h"

namespace {

/// Our own functions, not those that another preloaded library has put before them.
void* own_symbol(const char* name) {
  static void* const self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return convtrace::cupti::find_own_symbol(self, name);
}

struct Row {
  std::string_view name;
  bool per_thread;
  int since;
  const char* function;
};
constexpr Row kRows[] = {
#define FAKECUDA_ROW(name, per_thread, since, function) {#name, per_thread != 0, since, #function},
#include "tests/fakecuda/versions.inc"
#undef FAKECUDA_ROW
};

/// @return the newest that is not newer than the version asked for, null if it is none.
void* look_up(std::string_view name, int version, bool per_thread,
              CUdriverProcAddressQueryResult& status) {
  const auto has_name = [&](const Row& row) { return row.name == name; };
  const auto fits = [&](const Row& row) { return has_name(row) && row.per_thread == per_thread; };
  if (per_thread && std::ranges::none_of(kRows, fits)) per_thread = false;
  const Row* newest = nullptr;
  for (const Row& row : kRows)
    if (fits(row) && row.since <= version) newest = &row;
  status = newest != nullptr                      ? CU_GET_PROC_ADDRESS_SUCCESS
           : std::ranges::any_of(kRows, has_name) ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return newest != nullptr ? own_symbol(newest->function) : nullptr;
}

}  // namespace

// As drivers 535 to 555 do: what is not found is null here, and an error that leaves `function`
// alone in the first version.
FAKECUDA_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                             cuuint64_t flags,
                                             CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || function == nullptr || (flags & ~kFlags) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUdriverProcAddressQueryResult found{};
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  *function = look_up(symbol, version, per_thread, found);
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}

#undef cuGetProcAddress
FAKECUDA_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                                          cuuint64_t flags) {
  void* found = nullptr;
  const CUresult result = cuGetProcAddress_v2(symbol, &found, version, flags, nullptr);
  if (result != CUDA_SUCCESS) return result;
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = found;
  return CUDA_SUCCESS;
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

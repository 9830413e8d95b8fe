#include "cupti/api.h"

#include <dlfcn.h>

#include "cupti/elf_symbols.h"

namespace convtrace::cupti {
namespace {

/// The table entry's type is the prototype of the header, which names the current ABI of a
/// function; the symbol names the same ABI in the library.
template <typename Function>
bool fill(void* library, const char* symbol, bool required, Function& entry) {
  entry = reinterpret_cast<Function>(find_own_symbol(library, symbol));
  return entry != nullptr || !required;
}

void* open_cupti(const std::string& path) {
  constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12"};
  // A second copy beside the one a framework brought would be a second, silent CUPTI.
  for (const char* name : kNames)
    if (void* loaded = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return loaded;
  for (const char* name : kNames)
    if (void* found = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return found;
  return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Status load_driver_api(DriverApi& api) noexcept {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return Status::make(StatusCode::kNotFound, "libcuda.so.1");
  DriverApi filled;
#define CONVTRACE_X(member, prototype, symbol, required) \
  if (!fill(library, symbol, required, filled.member))   \
    return Status::make(StatusCode::kUnavailable, symbol);
  CONVTRACE_DRIVER_API(CONVTRACE_X)
#undef CONVTRACE_X
  api = filled;
  return kOkStatus;
}

Status load_cupti_api(const std::string& path, CuptiApi& api, std::string& found) noexcept {
  void* library = open_cupti(path);
  if (library == nullptr) return Status::make(StatusCode::kNotFound, "libcupti.so");
  CuptiApi filled;
#define CONVTRACE_X(member, prototype, required)           \
  if (!fill(library, #prototype, required, filled.member)) \
    return Status::make(StatusCode::kUnavailable, #prototype);
  CONVTRACE_CUPTI_API(CONVTRACE_X)
#undef CONVTRACE_X
  found = library_path(library);
  api = filled;
  return kOkStatus;
}

}  // namespace convtrace::cupti

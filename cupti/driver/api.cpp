#include "cupti/driver/api.h"

#include <dlfcn.h>

#include "cupti/driver/elf_symbols.h"

namespace convtrace::cupti {
namespace {

constexpr const char* kCupti12 = "libcupti.so.12";
constexpr const char* kCupti13 = "libcupti.so.13";

/// The type of the entry is the header's prototype, which stands for the function's current ABI
/// version; the symbol names the same version in the library.
template <typename Function>
bool fill(void* library, const char* symbol, bool required, Function& entry) {
  entry = reinterpret_cast<Function>(find_own_symbol(library, symbol));
  return entry != nullptr || !required;
}

void* open_cupti(const std::string& path, int driver_version) {
  if (!path.empty()) return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const bool fits_13 = driver_version >= 13'000;
  const char* const fitting[] = {fits_13 ? kCupti13 : kCupti12, kCupti12};
  // If the framework has loaded a copy, loading another would give a second CUPTI without
  // callbacks.
  for (const char* name : fitting)
    if (void* loaded = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return loaded;
  for (const char* name : fitting)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return dlopen(kCupti13, RTLD_NOW | RTLD_LOCAL);
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

Status load_cupti_api(const std::string& path, int driver_version, CuptiApi& api,
                      std::string& found) noexcept {
  found = !path.empty()              ? path
          : driver_version >= 13'000 ? std::string(kCupti13) + " or " + kCupti12
                                     : kCupti12;
  void* library = open_cupti(path, driver_version);
  if (library == nullptr) return Status::make(StatusCode::kNotFound, "libcupti.so");
  found = library_path(library);
  CuptiApi filled;
#define CONVTRACE_X(member, prototype, required)           \
  if (!fill(library, #prototype, required, filled.member)) \
    return Status::make(StatusCode::kUnavailable, #prototype);
  CONVTRACE_CUPTI_API(CONVTRACE_X)
#undef CONVTRACE_X
  api = filled;
  return kOkStatus;
}

}  // namespace convtrace::cupti

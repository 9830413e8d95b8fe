#include "interposer/core/preload_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "cupti/abi/hooks_v1.h"
#include "format/settings/run_mark.h"
#include "format/settings/settings.h"

namespace convtrace::engine {

std::atomic<int>* cpu_reports() noexcept {
  return static_cast<std::atomic<int>*>(dlsym(RTLD_DEFAULT, CONVTRACE_CPU_ALLOC_SYMBOL));
}

void mark_explained() noexcept {
  settings::leave_run_mark(getenv(settings::kAnnounceName.data()));
  if (auto* const slot = static_cast<int*>(dlsym(RTLD_DEFAULT, CONVTRACE_EXPLAINED_SYMBOL)))
    *slot = 1;
}

}  // namespace convtrace::engine

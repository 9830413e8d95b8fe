#include <cstdlib>
#include <cstring>

#include "cupti/driver/mutation.h"

namespace {
/// Kernels here wait for others: there is no doing them at once.
[[maybe_unused]] const int seeded = setenv("FAKECUDA_SEED", "1", 0);
}  // namespace

namespace convtrace::cupti {

bool is_mutated(const char* name) noexcept {
  static const char* const wanted = getenv("CONVTRACE_MUTATION");
  return wanted != nullptr && strcmp(wanted, name) == 0;
}

}  // namespace convtrace::cupti

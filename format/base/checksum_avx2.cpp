#include "format/base/checksum_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace convtrace {

uint64_t checksum64_avx2(const void* data, size_t bytes) noexcept {
  return XXH3_64bits(data, bytes);
}

}  // namespace convtrace

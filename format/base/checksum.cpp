#include "format/base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace convtrace {

uint64_t checksum64(Bytes bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

uint32_t checksum32(Bytes bytes) noexcept { return static_cast<uint32_t>(checksum64(bytes)); }

}  // namespace convtrace

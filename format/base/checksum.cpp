#include "format/base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "format/base/checksum_avx2.h"

namespace convtrace {
namespace {

using Function = uint64_t (*)(const void* data, size_t bytes) noexcept;

uint64_t checksum64_baseline(const void* data, size_t bytes) noexcept {
  return XXH3_64bits(data, bytes);
}

Function fastest() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) return &checksum64_avx2;
#endif
  return &checksum64_baseline;
}

}  // namespace

uint64_t checksum64(Bytes bytes) noexcept {
  static const Function function = fastest();
  return function(bytes.data(), bytes.size());
}

uint32_t checksum32(Bytes bytes) noexcept { return static_cast<uint32_t>(checksum64(bytes)); }

}  // namespace convtrace

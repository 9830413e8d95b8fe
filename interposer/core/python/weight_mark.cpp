#include "interposer/core/python/weight_mark.h"

#include <algorithm>
#include <cstring>

#include "interposer/core/memory/readable.h"

namespace convtrace::python {
namespace {

/// Address of an element by its number in row-major order.
uint64_t element_at(const TensorMessage& message, uint64_t number, uint64_t width) {
  uint64_t address = message.fixed.data;
  for (size_t d = message.fixed.rank; d-- > 0;) {
    const auto extent = static_cast<uint64_t>(message.dims[d]);
    const auto stride = static_cast<uint64_t>(message.dims[message.fixed.rank + d]);
    address += number % extent * stride * width;
    number /= extent;
  }
  return address;
}

bool can_be_read(uint64_t first, uint64_t bytes) {
  const auto is_readable = [](uint64_t address) {
    return engine::is_readable(reinterpret_cast<const void*>(address));
  };
  return is_readable(first) && is_readable(first + bytes - 1);
}

/// @return 0 where the elements are not in host memory that the storage owns, or are not mapped.
uint32_t digest_of(const TensorMessage& message, bool is_torchs) {
  const convtrace_tensor& fixed = message.fixed;
  const uint64_t width = format::element_bytes(static_cast<format::DType>(fixed.dtype));
  uint64_t count = 1;
  for (size_t d = 0; d < fixed.rank; ++d) count *= static_cast<uint64_t>(message.dims[d]);
  if (fixed.device_type != 0 || width == 0 || count == 0) return 0;
  const uint64_t probed = std::min(count, kProbed);
  uint64_t digest = 0xcbf29ce484222325;  // FNV-1a, a word at a time
  for (uint64_t i = 0; i < probed; ++i) {
    const uint64_t number = probed == 1 ? 0 : (count - 1) * i / (probed - 1);
    const uint64_t at = element_at(message, number, width);
    if (at < fixed.storage_base || at + width > fixed.storage_base + fixed.storage_bytes) return 0;
    uint64_t word = 0;
    const uint64_t bytes = std::min<uint64_t>(width, sizeof word);
    if (!is_torchs && !can_be_read(at, bytes)) return 0;
    std::memcpy(&word, reinterpret_cast<const void*>(at), bytes);
    digest = (digest ^ word) * 0x100000001b3;
    digest ^= digest >> 29;
  }
  return static_cast<uint32_t>(digest >> 32) | 1;
}

}  // namespace

WeightMark mark_of(const TensorMessage& message, uint64_t epoch, bool is_torchs) {
  const uint64_t storage = message.fixed.storage & ((uint64_t{1} << kStorageBits) - 1);
  return {epoch << kStorageBits | storage,
          uint64_t{message.fixed.version} << 32 | digest_of(message, is_torchs)};
}

}  // namespace convtrace::python

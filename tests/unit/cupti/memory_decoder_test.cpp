#include "cupti/memory_decoder.h"

#include <cupti.h>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

using format::MemorySource;
using Kind = MemoryChange::Kind;

CUstream const kStream = reinterpret_cast<CUstream>(uintptr_t{0x77});

TEST_CASE("memory_decoder: allocations read the address that the call returned",
          "[memory_decoder]") {
  CUdeviceptr address = 0x7000;
  size_t pitch = 512;
  void* host = reinterpret_cast<void*>(uintptr_t{0x9000});
  const cuMemAlloc_v2_params plain{&address, 100};
  CHECK(decode_cuMemAlloc_v2(&plain).kind == Kind::kAlloc);
  CHECK(decode_cuMemAlloc_v2(&plain).address == 0x7000);
  CHECK(decode_cuMemAlloc_v2(&plain).bytes == 100);
  CHECK(decode_cuMemAlloc_v2(&plain).memory == MemorySource::kDriver);

  const cuMemAllocPitch_v2_params pitched{&address, &pitch, 500, 3, 4};
  CHECK(decode_cuMemAllocPitch_v2(&pitched).bytes == 3 * 512);

  const cuMemAllocAsync_params ordered{&address, 64, kStream};
  CHECK(decode_cuMemAllocAsync(&ordered).memory == MemorySource::kStreamOrdered);
  CHECK(decode_cuMemAllocAsync(&ordered).stream == kStream);

  const cuMemHostAlloc_params pinned{&host, 4096, 0};
  CHECK(decode_cuMemHostAlloc(&pinned).memory == MemorySource::kHost);
  CHECK(decode_cuMemHostAlloc(&pinned).address == 0x9000);

  const cuMemMap_params mapped{0x200000, 0x1000, 0, 1, 0};
  CHECK(decode_cuMemMap(&mapped).memory == MemorySource::kVirtual);
  CHECK(decode_cuMemMap(&mapped).bytes == 0x1000);
}

TEST_CASE("memory_decoder: a foreign mapping whose size the call does not tell has none",
          "[memory_decoder]") {
  CUdeviceptr address = 0x7000;
  cuIpcOpenMemHandle_v2_params p{};
  p.pdptr = &address;
  CHECK(decode_cuIpcOpenMemHandle_v2(&p).memory == MemorySource::kForeign);
  CHECK(decode_cuIpcOpenMemHandle_v2(&p).bytes == 0);
}

TEST_CASE("memory_decoder: frees name the kind of memory they are for", "[memory_decoder]") {
  const cuMemFree_v2_params plain{0x7000};
  CHECK(decode_cuMemFree_v2(&plain).kind == Kind::kFree);
  CHECK(decode_cuMemFree_v2(&plain).address == 0x7000);
  const cuMemFreeAsync_params ordered{0x7000, kStream};
  CHECK(decode_cuMemFreeAsync(&ordered).memory == MemorySource::kStreamOrdered);
  const cuMemUnmap_params unmap{0x200000, 0x2000};
  CHECK(decode_cuMemUnmap(&unmap).kind == Kind::kUnmap);
  CHECK(decode_cuMemUnmap(&unmap).bytes == 0x2000);
}

TEST_CASE("memory_decoder: copies and sets tell destination, source and bytes",
          "[memory_decoder]") {
  const cuMemcpyDtoDAsync_v2_params copy{0x1000, 0x2000, 64, kStream};
  const MemoryChange copied = decode_cuMemcpyDtoDAsync_v2(&copy);
  CHECK(copied.kind == Kind::kCopy);
  CHECK(copied.address == 0x1000);
  CHECK(copied.source == 0x2000);
  CHECK(copied.bytes == 64);
  CHECK(copied.stream == kStream);

  const cuMemsetD32Async_params set{0x1000, 0xabcd, 16, kStream};
  CHECK(decode_cuMemsetD32Async(&set).kind == Kind::kSet);
  CHECK(decode_cuMemsetD32Async(&set).bytes == 64);
  CHECK(decode_cuMemsetD32Async(&set).source == 0xabcd);
  const cuMemsetD16_v2_params narrow{0x1000, 1, 16};
  CHECK(decode_cuMemsetD16_v2(&narrow).bytes == 32);
}

}  // namespace
}  // namespace convtrace::cupti

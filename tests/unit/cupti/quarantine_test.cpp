// Quarantine over the fake driver, in one process: what the integration tests cannot show, and what
// sanitizers look at.

#include "cupti/memory/quarantine.h"

#include <cuda.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "cupti/driver/api.h"
#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

constexpr size_t kBytes = 4096;

struct Kept {
  explicit Kept(bool poison = true, bool quarantine = true) {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(load_driver_api(driver).ok());
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
    memory = std::make_unique<Quarantine>(driver, poison, quarantine);
    REQUIRE(memory->possible());
  }
  ~Kept() {
    memory->give_back();
    cuCtxDestroy(context);
  }

  CUdeviceptr allocate(size_t bytes = kBytes) {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
    memory->given(address, bytes, true);
    return address;
  }
  /// As the preload library's wrapper does.
  Quarantine::Free free(CUdeviceptr address) {
    const Quarantine::Free what = memory->free(address, [this] { ++freed; });
    if (what == Quarantine::Free::kCall) REQUIRE(cuMemFree(address) == CUDA_SUCCESS);
    return what;
  }
  [[nodiscard]] static uint32_t word_at(CUdeviceptr address) {
    uint32_t word = 0;
    REQUIRE(cuMemcpyDtoH(&word, address, sizeof word) == CUDA_SUCCESS);
    return word;
  }

  DriverApi driver;
  CUcontext context = nullptr;
  std::unique_ptr<Quarantine> memory;
  std::atomic<int> freed{0};
};

}  // namespace

using Free = Quarantine::Free;

TEST_CASE("quarantine: fresh memory, memory in quarantine, and memory that went back") {
  Kept kept;
  const CUdeviceptr block = kept.allocate();
  CHECK(Kept::word_at(block) == kFreshPattern);
  CHECK(kept.free(block) == Free::kHeld);
  CHECK(kept.freed == 1);
  CHECK(Kept::word_at(block) == 0xFFFFFFFF);
  CHECK(kept.free(block) == Free::kTwice);
  CHECK(kept.memory->give_back());
  CHECK_FALSE(kept.memory->give_back());
  CHECK(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("quarantine: what lies at an address now must be what was seen to be made there") {
  Kept kept;
  const CUdeviceptr block = kept.allocate();
  REQUIRE(cuMemFree(block) == CUDA_SUCCESS);  // past the gate
  CUdeviceptr other = 0;
  REQUIRE(cuMemAlloc(&other, kBytes / 2) == CUDA_SUCCESS);
  REQUIRE(other == block);
  REQUIRE(cuMemsetD8(other, 7, kBytes / 2) == CUDA_SUCCESS);
  CHECK(kept.free(other) == Free::kCall);
}

TEST_CASE("quarantine: memory of pools is filled by the streams that are given it and free it") {
  Kept kept(true, false);
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CUdeviceptr block = 0;
  REQUIRE(cuMemAllocAsync(&block, kBytes, stream) == CUDA_SUCCESS);
  SECTION("filled") {
    kept.memory->given_in_order(block, kBytes, stream, true);
    CHECK(Kept::word_at(block) == kFreshPattern);
    kept.memory->taken_in_order(block, stream, true);
    CHECK(Kept::word_at(block) == 0xFFFFFFFF);
  }
  SECTION("not while something is captured") {
    kept.memory->given_in_order(block, kBytes, stream, false);
    kept.memory->taken_in_order(block, stream, false);
    CHECK(Kept::word_at(block) == 0);
  }
  SECTION("not what another process has") {
    kept.memory->given_in_order(block, kBytes, stream, true);
    kept.memory->shared(block + 8);
    kept.memory->taken_in_order(block, stream, true);
    CHECK(Kept::word_at(block) == kFreshPattern);
  }
  SECTION("not what was not seen to be made") {
    kept.memory->taken_in_order(block, stream, true);
    CHECK(Kept::word_at(block) == 0);
  }
  CHECK(kept.free(block) == Free::kCall);
}

TEST_CASE("quarantine: nothing is held that is too big, is a pool's, or comes behind a capture") {
  Kept kept;
  CHECK(kept.free(kept.allocate(size_t{2} << 30)) == Free::kCall);
  CHECK(kept.memory->end());
  CHECK_FALSE(kept.memory->end());
  CHECK(kept.free(kept.allocate()) == Free::kCall);
  CHECK(kept.freed == 0);
}

TEST_CASE("quarantine: a context that ends takes its memory along") {
  Kept kept;
  const CUdeviceptr block = kept.allocate();
  REQUIRE(kept.free(block) == Free::kHeld);
  kept.memory->context_ended(kept.context);
  CHECK_FALSE(kept.memory->give_back());
  CHECK(cuMemFree(block) == CUDA_SUCCESS);  // the fake keeps it
}

TEST_CASE("quarantine: many threads, some of which run short") {
  Kept kept;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&kept, &wrong, t] {
      if (cuCtxSetCurrent(kept.context) != CUDA_SUCCESS) ++wrong;
      for (int i = 0; i < 300; ++i) {
        CUdeviceptr address = 0;
        if (cuMemAlloc(&address, kBytes) != CUDA_SUCCESS) ++wrong;
        kept.memory->given(address, kBytes, true);
        // Nobody else's, as long as it is ours.
        if (cuMemsetD8(address, static_cast<unsigned char>(t), kBytes) != CUDA_SUCCESS) ++wrong;
        uint32_t word = 0;
        if (cuMemcpyDtoH(&word, address, sizeof word) != CUDA_SUCCESS) ++wrong;
        if (word != 0x01010101u * static_cast<unsigned>(t)) ++wrong;
        if (i % 50 == 7 * t) (void)kept.memory->give_back();
        const Free what = kept.memory->free(address, [&kept] { ++kept.freed; });
        if (what == Free::kTwice) ++wrong;
        if (what == Free::kCall && cuMemFree(address) != CUDA_SUCCESS) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(kept.freed == 4 * 300);
}

}  // namespace convtrace::cupti

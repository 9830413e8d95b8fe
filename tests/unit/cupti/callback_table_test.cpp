#include "cupti/callback_table.h"

#include <set>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

TEST_CASE("callback_table: each callback stands in the table once and is found there",
          "[callback_table]") {
  std::set<CUpti_CallbackId> seen;
  for (const CallbackEntry& entry : driver_callbacks()) {
    CHECK(seen.insert(entry.cbid).second);
    CHECK(find_driver_callback(entry.cbid) == &entry);
  }
  CHECK(seen.contains(307));  // cuLaunchKernel, by the number that cupti_driver_cbid.h fixes
  CHECK(seen.contains(442));  // cuLaunchKernel_ptsz
  CHECK(seen.contains(243));  // cuMemAlloc_v2
}

TEST_CASE("callback_table: what is not enabled is not found", "[callback_table]") {
  CHECK(find_driver_callback(CUPTI_DRIVER_TRACE_CBID_INVALID) == nullptr);
  CHECK(find_driver_callback(CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent) == nullptr);
  CHECK(find_driver_callback(CUPTI_DRIVER_TRACE_CBID_SIZE) == nullptr);
  CHECK(find_driver_callback(UINT32_MAX) == nullptr);
}

TEST_CASE("callback_table: per-thread twins are marked and share the decoder", "[callback_table]") {
  const auto* plain = find_driver_callback(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  const auto* twin = find_driver_callback(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz);
  REQUIRE(plain != nullptr);
  REQUIRE(twin != nullptr);
  CHECK_FALSE(plain->per_thread);
  CHECK(twin->per_thread);
  CHECK(std::get<LaunchDecoder>(plain->decoder) == std::get<LaunchDecoder>(twin->decoder));
}

TEST_CASE("callback_table: whatever reads a returned value is for successful exits only",
          "[callback_table]") {
  using Alloc = AllocDecoder;
  for (const CUpti_CallbackId cbid :
       {CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2,
        CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz, CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc,
        CUPTI_DRIVER_TRACE_CBID_cuIpcOpenMemHandle_v2})
    CHECK(std::holds_alternative<Alloc>(find_driver_callback(cbid)->decoder));
  CHECK(std::holds_alternative<MemoryDecoder>(
      find_driver_callback(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2)->decoder));
}

}  // namespace
}  // namespace convtrace::cupti

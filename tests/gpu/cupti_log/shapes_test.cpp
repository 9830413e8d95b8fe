#include "tests/gpu/cupti_log/shapes.h"

#include <cupti.h>

#include "tests/support/catch.h"

namespace convtrace::cupti_log {
namespace {

TEST_CASE("cupti_log: every callback of the table has a shape, and those with parameters a size",
          "[cupti_log]") {
  for (const cupti::CallbackEntry& entry : cupti::driver_callbacks()) {
    CAPTURE(entry.cbid);
    const Shape* const shape = find_shape(entry);
    REQUIRE(shape != nullptr);
    const bool unread = std::holds_alternative<cupti::ContextCall>(entry.decoder) ||
                        std::holds_alternative<cupti::ContextEnd>(entry.decoder) ||
                        std::holds_alternative<cupti::SharingCall>(entry.decoder) ||
                        entry.cbid == CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize;
    CHECK((shape->bytes == 0) == unread);
    for (const Pointee& pointee : shape->pointees) {
      CHECK(pointee.at + sizeof(void*) <= shape->bytes);
      CHECK(pointee.count_at + pointee.count_bytes <= shape->bytes);
    }
  }
}

TEST_CASE(
    "cupti_log: an allocation's address is what the call returns, a batch's are the program's",
    "[cupti_log]") {
  const Shape& alloc =
      *find_shape(*cupti::find_driver_callback(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2));
  REQUIRE(alloc.pointees.size() == 1);
  CHECK(alloc.bytes == sizeof(cuMemAlloc_v2_params));
  CHECK(alloc.pointees[0].bytes == sizeof(CUdeviceptr));
  CHECK_FALSE(alloc.pointees[0].input);
  const Shape& batch =
      *find_shape(*cupti::find_driver_callback(CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2_ptsz));
  REQUIRE(batch.pointees.size() == 3);
  for (const Pointee& pointee : batch.pointees) {
    CHECK(pointee.input);
    CHECK(pointee.count_at == offsetof(cuMemcpyBatchAsync_v2_params, count));
    CHECK(pointee.count_bytes == sizeof(size_t));
  }
}

}  // namespace
}  // namespace convtrace::cupti_log

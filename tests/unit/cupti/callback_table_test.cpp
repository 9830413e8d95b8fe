#include "cupti/calls/callback_table.h"

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

// The numbers are fixed by cupti_driver_cbid.h and the same in CUDA 12 and 13.
TEST_CASE("callback_table: the working set is there by its numbers", "[callback_table]") {
  constexpr CUpti_CallbackId kLaunches[] = {307, 442, 652, 653, 477, 478,
                                            480, 115, 116, 117, 514, 515};
  constexpr CUpti_CallbackId kMemory[] = {243, 244, 371, 598, 599, 611, 612, 294, 39,  379,
                                          245, 600, 601, 38,  302, 548, 549, 550, 551, 552,
                                          555, 565, 706, 567, 330, 486, 616, 247};
  constexpr CUpti_CallbackId kWrites[] = {
      277, 421, 281, 423, 306, 418, 276, 397, 280, 399, 305, 408, 319, 426, 289, 424, 291, 425,
      796, 797, 798, 799, 776, 777, 778, 779, 761, 762, 216, 428, 218, 429, 220, 430, 222, 224,
      226, 431, 432, 433, 249, 411, 250, 412, 251, 413, 789, 790, 791, 792, 278, 398, 282, 403};
  constexpr CUpti_CallbackId kOthers[] = {23,  681, 683, 740, 738, 22,  680, 682, 697, 698,
                                          781, 699, 495, 496, 539, 540, 720, 721, 497, 498};
  constexpr CUpti_CallbackId kSyncs[] = {118, 325, 119, 441, 587, 588, 120, 121, 123,
                                         780, 295, 436, 124, 367, 326, 126, 440, 125,
                                         439, 17,  800, 335, 758, 749, 750, 755, 756};
  const auto all_there = [](auto& cbids) {
    for (const CUpti_CallbackId cbid : cbids) {
      CAPTURE(cbid);
      CHECK(find_driver_callback(cbid) != nullptr);
    }
  };
  all_there(kLaunches);
  all_there(kMemory);
  all_there(kWrites);
  all_there(kSyncs);
  all_there(kOthers);
}

}  // namespace
}  // namespace convtrace::cupti

/// @file fakecupti_activity.cpp
/// CUPTI's activity API for the one kind of record that a profiler needs to count kernels. The
/// functions without a subscriber: the state is the process's, whoever set it (cupti_activity.h).

#include <cupti.h>

#include <atomic>
#include <mutex>

#include "tests/fakecuda/fakecupti.h"

namespace fakecuda {
namespace {

std::mutex the_mutex;
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
std::atomic<bool> kernels{false};
uint8_t* buffer = nullptr;
size_t buffer_bytes = 0;
size_t used = 0;

void hand_over() {
  if (buffer != nullptr) complete(nullptr, 0, buffer, buffer_bytes, used);
  buffer = nullptr;
  buffer_bytes = used = 0;
}

bool is_launch(uint32_t cbid) {
  return cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel ||
         cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz ||
         cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx ||
         cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz;
}

}  // namespace

bool records_kernels() { return kernels.load(); }

void record_kernel(const HookCall& call) {
  if (call.resource || call.site != CUPTI_API_EXIT || !is_launch(call.cbid)) return;
  if (*call.result != CUDA_SUCCESS) return;
  const std::lock_guard lock(the_mutex);
  if (!kernels || request == nullptr) return;
  if (used + sizeof(CUpti_ActivityKernel10) > buffer_bytes) {
    hand_over();
    size_t most_records = 0;
    request(&buffer, &buffer_bytes, &most_records);
    if (buffer == nullptr || buffer_bytes < sizeof(CUpti_ActivityKernel10)) return;
  }
  auto& record = *reinterpret_cast<CUpti_ActivityKernel10*>(buffer + used);
  record = {};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = call.symbol;
  used += sizeof record;
}

void end_activity() {
  const std::lock_guard lock(the_mutex);
  kernels = false;
  request = nullptr;
  complete = nullptr;
  buffer = nullptr;
}

}  // namespace fakecuda

using namespace fakecuda;

FAKECUPTI_EXPORT CUptiResult cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed) {
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(the_mutex);
  request = requested;
  complete = completed;
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return CUPTI_ERROR_INVALID_KIND;
  kernels = true;
  follow_driver();
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return CUPTI_ERROR_INVALID_KIND;
  kernels = false;
  follow_driver();
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t) {
  const std::lock_guard lock(the_mutex);
  if (complete == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
  hand_over();
  return CUPTI_SUCCESS;
}

FAKECUPTI_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* records, size_t bytes,
                                                        CUpti_Activity** record) {
  uint8_t* const last = reinterpret_cast<uint8_t*>(*record);
  uint8_t* const next = last == nullptr ? records : last + sizeof(CUpti_ActivityKernel10);
  if (next >= records + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

/// Events.

#include <ctime>

#include "tests/fakecuda/driver.h"

namespace fakecuda {
namespace {

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

CUresult record_event(CUevent event, CUstream stream) {
  {
    const std::lock_guard lock(driver().mutex);
    event->captured_on = stream->status != CU_STREAM_CAPTURE_STATUS_NONE ? stream : nullptr;
    if (event->captured_on != nullptr) return CUDA_SUCCESS;
  }
  Work work;
  work.other = [event] { event->recorded_ns = now_ns(); };
  return enqueue(stream, std::move(work), &event->record);
}

/// An event of a capture stands for nothing that is done. Source: cuEventQuery,
/// CUDA_ERROR_CAPTURED_EVENT.
CUresult askable(CUevent event) {
  if (const CUresult status = event_status(event); status != CUDA_SUCCESS) return status;
  {
    const std::lock_guard lock(driver().mutex);
    if (event->captured_on != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  }
  return forbid_during_capture();
}

}  // namespace

CUresult event_status(CUevent event) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().mutex);
  return driver().events.contains(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace fakecuda

using namespace fakecuda;

FAKECUDA_EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  const cuEventCreate_params params{event, flags};
  return FAKECUDA_AROUND(cuEventCreate, params, [&] {
    if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
    auto* created = new CUevent_st;
    created->context = current_context();
    const std::lock_guard lock(driver().mutex);
    driver().all_events.emplace_back(created);
    driver().events.insert(created);
    *event = created;
    return CUDA_SUCCESS;
  });
}

FAKECUDA_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  const cuEventRecord_params params{event, stream};
  return FAKECUDA_AROUND(cuEventRecord, params, [&] {
    CUstream resolved = resolve(stream, false);
    if (event_status(event) != CUDA_SUCCESS || resolved == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    return record_event(event, resolved);
  });
}

FAKECUDA_EXPORT CUresult cuEventSynchronize(CUevent event) {
  const cuEventSynchronize_params params{event};
  return FAKECUDA_AROUND(cuEventSynchronize, params, [&] {
    if (const CUresult status = askable(event); status != CUDA_SUCCESS) return status;
    scheduler().wait(event->record);
    return entry_status();
  });
}

FAKECUDA_EXPORT CUresult cuEventQuery(CUevent event) {
  const cuEventQuery_params params{event};
  return FAKECUDA_AROUND(cuEventQuery, params, [&] {
    if (const CUresult status = askable(event); status != CUDA_SUCCESS) return status;
    return scheduler().is_pending(event->record) ? CUDA_ERROR_NOT_READY : entry_status();
  });
}

FAKECUDA_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  const cuEventElapsedTime_v2_params params{milliseconds, start, end};
  return FAKECUDA_AROUND(cuEventElapsedTime_v2, params, [&] {
    if (scheduler().is_pending(start->record) || scheduler().is_pending(end->record))
      return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>(end->recorded_ns - start->recorded_ns) * 1e-6F;
    return entry_status();
  });
}

FAKECUDA_EXPORT CUresult cuEventDestroy(CUevent event) {
  const cuEventDestroy_v2_params params{event};
  return FAKECUDA_AROUND(cuEventDestroy_v2, params, [&] {
    const std::lock_guard lock(driver().mutex);
    return driver().events.erase(event) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

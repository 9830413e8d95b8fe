/// Streams, events and capture.

#include "tests/fakecuda/driver.h"

namespace fakecuda {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool is_capturing(const CUstream_st& stream) {
  return stream.status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Calls `visit` for every stream, until it answers true. Driver::mutex is held.
template <typename Visit>
bool any_stream(Visit visit) {
  for (CUstream stream : driver().streams)
    if (visit(*stream)) return true;
  for (CUcontext context : driver().contexts)
    if (visit(context->legacy) || visit(context->per_thread)) return true;
  return false;
}

bool forbids(const CUstream_st& stream) {
  if (stream.status != CU_STREAM_CAPTURE_STATUS_ACTIVE ||
      thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return false;
  if (stream.capturing_thread == std::this_thread::get_id())
    return stream.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         stream.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

bool is_legacy(CUstream stream) {
  return stream->context != nullptr && stream == &stream->context->legacy;
}

bool blocking_capture(const CUstream_st& stream) {
  return stream.blocking && stream.status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

CUresult forbid_during_capture() {
  const std::lock_guard lock(driver().mutex);
  bool forbidden = false;
  any_stream([&](CUstream_st& stream) {
    if (!forbids(stream)) return false;
    stream.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    forbidden = true;
    return false;
  });
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUstream resolve(CUstream stream, bool per_thread) {
  CUcontext context = current_context();
  if (context == nullptr) return nullptr;
  if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread))
    return &context->per_thread;
  if (stream == CU_STREAM_LEGACY || stream == nullptr) return &context->legacy;
  const std::lock_guard lock(driver().mutex);
  return driver().streams.contains(stream) ? stream : nullptr;
}

CUresult enqueue(CUstream stream, Work work) {
  {
    const std::lock_guard lock(driver().mutex);
    if (stream->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (is_capturing(*stream)) {
      stream->capture->nodes.push_back({.work = std::move(work)});
      return CUDA_SUCCESS;
    }
    bool implicit = false;
    if (is_legacy(stream)) {
      any_stream([&](CUstream_st& other) {
        if (!blocking_capture(other)) return false;
        other.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        implicit = true;
        return false;
      });
    }
    if (implicit) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const std::lock_guard order(stream->running);
  if (stream->held) {
    stream->late.push_back(std::move(work));
  } else {
    work.run();
  }
  return CUDA_SUCCESS;
}

void catch_up(CUstream stream) {
  const std::lock_guard order(stream->running);
  for (; !stream->late.empty(); stream->late.pop_front()) stream->late.front().run();
}

void catch_up_all() {
  std::vector<CUstream> all;
  {
    const std::lock_guard lock(driver().mutex);
    any_stream([&](CUstream_st& stream) {
      all.push_back(&stream);
      return false;
    });
  }
  for (CUstream stream : all) catch_up(stream);
}

namespace {

CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  if (is_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(driver().mutex);
  if (is_capturing(*stream)) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = std::make_shared<CUgraph_st>();
  stream->joined = false;
  stream->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  stream->mode = mode;
  stream->capturing_thread = std::this_thread::get_id();
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream stream, CUgraph* graph) {
  const std::lock_guard lock(driver().mutex);
  *graph = nullptr;
  if (!is_capturing(*stream)) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->joined) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  const bool valid = stream->status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const std::shared_ptr<CUgraph_st> capture = stream->capture;
  if (valid) (*graph = new CUgraph_st)->nodes.swap(capture->nodes);
  any_stream([&](CUstream_st& other) {
    if (other.capture != capture) return false;
    other.status = CU_STREAM_CAPTURE_STATUS_NONE;
    other.capture.reset();
    return false;
  });
  return valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult capture_status(CUstream stream, bool per_thread, CUstreamCaptureStatus* status) {
  if (const CUresult entry = entry_status(); entry != CUDA_SUCCESS) return entry;
  CUstream resolved = resolve(stream, per_thread);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(driver().mutex);
  *status = resolved->status;
  if (is_legacy(resolved) && any_stream(blocking_capture))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return CUDA_SUCCESS;
}

CUresult create_stream(CUstream* stream, unsigned flags) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  auto* created = new CUstream_st;
  created->context = current_context();
  created->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  const std::lock_guard lock(driver().mutex);
  driver().all_streams.emplace_back(created);
  driver().streams.insert(created);
  *stream = created;
  return CUDA_SUCCESS;
}

/// A stream that waits for an event of a capture takes part in it.
CUresult wait_event(CUstream stream, CUevent event) {
  if (CUstream const late = event->late_in.load()) catch_up(late);
  const std::lock_guard lock(driver().mutex);
  CUstream const from = event->captured_on;
  if (from == nullptr || !is_capturing(*from) || is_capturing(*stream)) return CUDA_SUCCESS;
  stream->capture = from->capture;
  stream->status = from->status;
  stream->mode = from->mode;
  stream->capturing_thread = from->capturing_thread;
  stream->joined = true;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKECUDA_EXPORT void fakecuda::fakecuda_hold(CUstream stream) {
  CUstream const resolved = resolve(stream, false);
  const std::lock_guard order(resolved->running);
  resolved->held = true;
}

FAKECUDA_EXPORT void fakecuda::fakecuda_release(CUstream stream) {
  CUstream const resolved = resolve(stream, false);
  const std::lock_guard order(resolved->running);
  resolved->held = false;
  catch_up(resolved);
}

FAKECUDA_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  const cuStreamCreate_params params{stream, flags};
  return FAKECUDA_AROUND(cuStreamCreate, params, [&] { return create_stream(stream, flags); });
}

FAKECUDA_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags,
                                                    int priority) {
  const cuStreamCreateWithPriority_params params{stream, flags, priority};
  return FAKECUDA_AROUND(cuStreamCreateWithPriority, params,
                         [&] { return create_stream(stream, flags); });
}

FAKECUDA_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  const cuStreamDestroy_v2_params params{stream};
  return FAKECUDA_AROUND(cuStreamDestroy_v2, params, [&] {
    if (CUstream const resolved = resolve(stream, false)) catch_up(resolved);
    const std::lock_guard lock(driver().mutex);
    return driver().streams.erase(stream) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

FAKECUDA_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  const cuStreamSynchronize_params params{stream};
  return FAKECUDA_AROUND(cuStreamSynchronize, params, [&] {
    if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
    CUstream const resolved = resolve(stream, false);
    if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult status = forbid_during_capture();
    if (status == CUDA_SUCCESS) catch_up(resolved);
    return status;
  });
}

FAKECUDA_EXPORT CUresult cuStreamQuery(CUstream stream) {
  const cuStreamQuery_params params{stream};
  return FAKECUDA_AROUND(cuStreamQuery, params, [&] {
    CUstream const resolved = resolve(stream, false);
    if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const std::lock_guard order(resolved->running);
    return resolved->late.empty() ? entry_status() : CUDA_ERROR_NOT_READY;
  });
}

FAKECUDA_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  CUstream resolved = resolve(stream, false);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = resolved->context;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  CUstream resolved = resolve(stream, false);
  if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = resolved->id;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  const cuStreamWaitEvent_params params{stream, event, flags};
  return FAKECUDA_AROUND(cuStreamWaitEvent, params, [&] {
    CUstream resolved = resolve(stream, false);
    if (event_status(event) != CUDA_SUCCESS || resolved == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    return wait_event(resolved, event);
  });
}

FAKECUDA_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return capture_status(stream, false, status);
}

FAKECUDA_EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return capture_status(stream, true, status);
}

FAKECUDA_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  const cuStreamBeginCapture_v2_params params{stream, mode};
  return FAKECUDA_AROUND(cuStreamBeginCapture_v2, params, [&] {
    CUstream resolved = resolve(stream, false);
    return resolved == nullptr ? CUDA_ERROR_INVALID_HANDLE : begin_capture(resolved, mode);
  });
}

FAKECUDA_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const cuStreamEndCapture_params params{stream, graph};
  return FAKECUDA_AROUND(cuStreamEndCapture, params, [&] {
    CUstream resolved = resolve(stream, false);
    return resolved == nullptr ? CUDA_ERROR_INVALID_HANDLE : end_capture(resolved, graph);
  });
}

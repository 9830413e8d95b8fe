/// Streams.

#include <algorithm>

#include "tests/fakecuda/capture.h"

namespace fakecuda {
namespace {

/// A capturing stream, and the legacy one beside a blocking one that captures, cannot be asked:
/// both captures are over. Source: G "Prohibited and Unhandled Operations" of stream capture.
CUresult forbid_query(CUstream stream) {
  const std::lock_guard lock(driver().mutex);
  if (is_capturing(*stream)) {
    stream->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const bool implicit = is_legacy(stream) && any_stream(blocking_capture);
  return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

}  // namespace

CUstream resolve(CUstream stream, bool per_thread) {
  CUcontext context = current_context();
  if (context == nullptr) return nullptr;
  if (stream == CU_STREAM_LEGACY || (stream == nullptr && !per_thread)) return &context->legacy;
  const std::lock_guard lock(driver().mutex);
  if (stream == CU_STREAM_PER_THREAD || stream == nullptr) {
    CUstream_st& own = context->per_thread[std::this_thread::get_id()];
    own.context = context;
    return &own;
  }
  return driver().streams.contains(stream) ? stream : nullptr;
}

CUresult enqueue(CUstream stream, Work work, std::atomic<uint64_t>* number) {
  {
    const std::lock_guard lock(driver().mutex);
    if (stream->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (is_capturing(*stream)) {
      stream->captured =
          &stream->capture->graph->nodes.emplace_back(CUgraphNode_st{.work = std::move(work)});
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
  if (scheduler().is_active()) {
    const uint64_t added = scheduler().add(stream, std::move(work));
    if (number != nullptr) *number = added;
    return CUDA_SUCCESS;
  }
  const std::lock_guard order(stream->running);
  work.run_to_end();
  return CUDA_SUCCESS;
}

CUresult wait_for(CUstream stream) {
  scheduler().wait(stream);
  return entry_status();
}

CUresult wait_for_context() {
  scheduler().wait_all(current_context());
  return entry_status();
}

namespace {

/// A stream at the address of one that was destroyed, if the seed says so: handles come again, ids
/// do not (cuda.h, cuStreamGetId).
CUstream make_stream() {
  auto& all = driver().all_streams;
  const auto gone = std::ranges::find_if(
      all, [](const auto& one) { return !driver().streams.contains(one.get()); });
  if (gone == all.end() || scheduler().draw() % 2 == 0)
    return all.emplace_back(new CUstream_st).get();
  (*gone)->id = ++CUstream_st::last_id;
  (*gone)->capture.reset();
  (*gone)->status = CU_STREAM_CAPTURE_STATUS_NONE;
  return gone->get();
}

CUresult create_stream(CUstream* stream, unsigned flags) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  const std::lock_guard lock(driver().mutex);
  CUstream const created = make_stream();
  created->context = current_context();
  created->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  driver().streams.insert(created);
  *stream = created;
  return CUDA_SUCCESS;
}

/// A stream that waits for an event of a capture takes part in it.
CUresult wait_event(CUstream stream, CUevent event) {
  const std::lock_guard lock(driver().mutex);
  CUstream const from = event->captured_on;
  if (is_capturing(*stream)) return CUDA_SUCCESS;
  if (from == nullptr || !is_capturing(*from)) {
    if (scheduler().is_active()) (void)scheduler().add(stream, {}, event->record.load());
    return CUDA_SUCCESS;
  }
  stream->capture = from->capture;
  stream->captured = from->captured;
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
  scheduler().hold(resolve(stream, false));
}

FAKECUDA_EXPORT void fakecuda::fakecuda_release(CUstream stream) {
  scheduler().release(resolve(stream, false));
}

FAKECUDA_EXPORT void fakecuda::fakecuda_connections(uint64_t count) {
  scheduler().set_connections(count);
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
    return status == CUDA_SUCCESS ? wait_for(resolved) : status;
  });
}

FAKECUDA_EXPORT CUresult cuStreamQuery(CUstream stream) {
  const cuStreamQuery_params params{stream};
  return FAKECUDA_AROUND(cuStreamQuery, params, [&] {
    if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
    CUstream const resolved = resolve(stream, false);
    if (resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult status = forbid_query(resolved); status != CUDA_SUCCESS) return status;
    return scheduler().is_busy(resolved) ? CUDA_ERROR_NOT_READY : entry_status();
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

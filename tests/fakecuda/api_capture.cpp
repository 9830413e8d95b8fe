/// Capture of streams into graphs.

#include "tests/fakecuda/capture.h"

namespace fakecuda {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool forbids(const CUstream_st& stream) {
  if (stream.status != CU_STREAM_CAPTURE_STATUS_ACTIVE ||
      thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return false;
  if (stream.capturing_thread == std::this_thread::get_id())
    return stream.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         stream.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace

bool is_capturing_any() {
  const std::lock_guard lock(driver().mutex);
  return any_stream(is_capturing);
}

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

namespace {

CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  if (is_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(driver().mutex);
  if (is_capturing(*stream)) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = std::make_shared<Capture>();
  stream->captured = nullptr;
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
  const std::shared_ptr<Capture> capture = stream->capture;
  if (valid) *graph = capture->graph.release();
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

/// What the stream's next node will depend on: here the last one, as the graph has an order.
CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, CUgraph* graph,
                      const CUgraphNode** nodes, size_t* count) {
  if (const CUresult asked = capture_status(stream, false, status);
      asked != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return asked;
  CUstream const resolved = resolve(stream, false);
  const std::lock_guard lock(driver().mutex);
  *graph = resolved->capture->graph.get();
  *nodes = &resolved->captured;
  *count = resolved->captured == nullptr ? 0 : 1;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKECUDA_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return capture_status(stream, false, status);
}

FAKECUDA_EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return capture_status(stream, true, status);
}

FAKECUDA_EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status,
                                                cuuint64_t*, CUgraph* graph,
                                                const CUgraphNode** nodes,
                                                const CUgraphEdgeData** edges, size_t* count) {
  *edges = nullptr;
  return capture_info(stream, status, graph, nodes, count);
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

#pragma once
/// @file capture.h
/// Functions that streams and their capture share.

#include <algorithm>

#include "tests/fakecuda/driver.h"

namespace fakecuda {

inline bool is_capturing(const CUstream_st& stream) {
  return stream.status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Calls `visit` for every stream until it returns true. The caller holds Driver::mutex.
template <typename Visit>
bool any_stream(Visit visit) {
  for (CUstream stream : driver().streams)
    if (visit(*stream)) return true;
  for (CUcontext context : driver().contexts)
    if (visit(context->legacy) ||
        std::ranges::any_of(context->per_thread, [&](auto& one) { return visit(one.second); }))
      return true;
  return false;
}

inline bool is_legacy(CUstream stream) {
  return stream->context != nullptr && stream == &stream->context->legacy;
}

inline bool blocking_capture(const CUstream_st& stream) {
  return stream.blocking && stream.status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace fakecuda

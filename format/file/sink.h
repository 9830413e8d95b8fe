#pragma once
/// @file sink.h
/// Where bytes of a trace go. A seam: tests put a faulty one in.

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/base/status.h"

namespace convtrace::format {

class Sink {
 public:
  virtual ~Sink() = default;

  /// Appends all of `a` then all of `b` (either may be empty). Handles EINTR and short writes.
  /// After an error nothing of this call may be relied on; the implementation tries to cut the file
  /// back to where it was.
  /// @return kNoSpace (ENOSPC, EDQUOT, EFBIG; detail errno), kIoError (detail errno).
  [[nodiscard]] virtual Status append(std::span<const std::byte> a,
                                      std::span<const std::byte> b) noexcept = 0;

  /// @return bytes appended so far.
  [[nodiscard]] virtual uint64_t size() const noexcept = 0;
};

}  // namespace convtrace::format

#pragma once
/// @file sink.h
/// The destination of a trace's bytes: an interface, so that tests can inject faults.

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/base/status.h"

namespace convtrace::format {

class Sink {
 public:
  virtual ~Sink() = default;

  /// Appends all of `a`, then all of `b` (either may be empty). Handles EINTR and short writes.
  /// After an error the written part is undefined; an implementation tries to truncate the file to
  /// its former size.
  /// @return kNoSpace (ENOSPC, EDQUOT, EFBIG; detail errno), kIoError (detail errno), kNotFound
  /// (there is no such file any more).
  [[nodiscard]] virtual Status append(std::span<const std::byte> a,
                                      std::span<const std::byte> b) noexcept = 0;

  /// @return the number of bytes appended so far.
  [[nodiscard]] virtual uint64_t size() const noexcept = 0;
};

}  // namespace convtrace::format

#pragma once
/// @file log.h
/// Writes one line to stderr (or CONVTRACE_LOG_FILE) from inside a host program.
///
/// Threads:  any. No allocation, lock, stream or locale; one write(2) a line; long lines are
///           truncated.
/// Errors:   none: a line that cannot be written is dropped. No signal reaches the host.
/// Stderr:   is descriptor 2, as long as it is open and not marked close-on-exec: Python marks each
///           file that it opens, and the first one gets number 2 where stderr was closed.
/// Rate:     of more than 100 lines in 10 s only errors are written; the next line counts the rest.
/// Form:     `convtrace[pid] W site: CT-1104 what happened; the effect; what to do`. Never stdout.

#include <cstdint>

#include "format/base/guarded_file.h"
#include "format/base/messages.h"

namespace convtrace {

/// Lines above `level` (kDebug is the most verbose) are not written. Ranks other than 0 write only
/// errors, unless the level is kDebug.
/// @param file  belongs to the caller and outlives its use; if it is lost, lines go to stderr. Null:
///              stderr.
void configure_log(format::Level level, uint32_t rank, GuardedFile* file = nullptr) noexcept;

/// Sets the rank of this process, where it becomes known later. Only rank 0 writes warnings and
/// notices.
void set_log_rank(uint32_t rank) noexcept;

[[nodiscard]] bool log_enabled(format::Level level) noexcept;

void log_line(const Message& message, const char* format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

/// Writes `convtrace: text` for the user of `convtrace run`, on rank 0, at any level.
void announce(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

}  // namespace convtrace

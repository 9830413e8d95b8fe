#pragma once
/// @file log.h
/// One line to stderr (or CONVTRACE_LOG_FILE) from inside somebody else's program.
///
/// Threads:  any. No allocation, lock, stream or locale; one write(2) a line; long lines are cut.
/// Errors:   none: a line that cannot be written is gone.
/// Rate:     of more than 100 lines in 10 s only errors are written; the next line counts the rest.
/// Form:     `convtrace[pid] W site: CT-1104 what happened; the effect; what to do`. Never stdout.

#include <cstdint>

#include "format/base/messages.h"

namespace convtrace {

/// Lines above `level` (kDebug is the most talkative) are not written. `rank` other than 0 speaks
/// only at kDebug, but for errors. `fd` stays owned by the caller; default 2.
void configure_log(format::Level level, uint32_t rank, int fd) noexcept;

/// Which rank this process is, where that was learnt later. 0 is the one that speaks.
void set_log_rank(uint32_t rank) noexcept;

[[nodiscard]] bool log_enabled(format::Level level) noexcept;

void log_line(const Message& message, const char* format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

/// What the user of `convtrace run` is told whatever the level, on rank 0: `convtrace: text`.
void announce(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

}  // namespace convtrace

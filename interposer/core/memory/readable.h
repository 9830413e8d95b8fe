#pragma once
/// @file readable.h
/// Memory of the program that may be gone, asked for without a fault and without a descriptor.
///
/// Threads:  any.
/// Errors:   none.

namespace convtrace::engine {

/// @return whether the byte at `address` can be read. Keeps errno.
[[nodiscard]] bool is_readable(const void* address) noexcept;

}  // namespace convtrace::engine

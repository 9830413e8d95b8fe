#pragma once
/// @file readable.h
/// Tests whether memory of the program is mapped, without a fault and without a descriptor.
///
/// Threads:  any.
/// Errors:   none.

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace convtrace::engine {

/// @return whether the byte at `address` can be read. Keeps errno.
[[nodiscard]] inline bool is_readable(const void* address) noexcept {
  const int saved_errno = errno;
  constexpr long kNoSuchChange = -1;  // the mask is read before this is refused
  // Eight bytes, which are aligned and so in the same page.
  const uintptr_t mask = reinterpret_cast<uintptr_t>(address) & ~uintptr_t{7};
  const bool readable =
      syscall(SYS_rt_sigprocmask, kNoSuchChange, mask, nullptr, 8) == 0 || errno != EFAULT;
  errno = saved_errno;
  return readable && mask != 0;  // without an address the call changes nothing and reads nothing
}

}  // namespace convtrace::engine

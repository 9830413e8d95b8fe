#pragma once
/// @file libunwind.h
/// libunwind's quick walk of the stack, without the descriptors that it would keep in the host.
///
/// libunwind checks an address that it has not met before by writing the byte there into a pipe,
/// which it opens once. A program that closes those numbers and opens files would find bytes written
/// into them and read out of them. So libunwind's calls about the pipe go to functions of ours that
/// ask the kernel without a descriptor. They serve the host as well, if it uses the same
/// libunwind.
///
/// It is opened at run time and never linked, because its `_Unwind_*` symbols would replace those
/// that the host's exceptions use.
///
/// Threads:  open_libunwind() from one.
/// Errors:   null: no libunwind is installed, its calls cannot be replaced, or the host has made it
///           open its pipe before.
/// Source:   libunwind 1.6.2 src/x86_64/Ginit.c (write_validate, open_pipe), elf(5) on DT_JMPREL.

namespace convtrace::engine {

using Backtrace = int (*)(void** frames, int size);

[[nodiscard]] Backtrace open_libunwind() noexcept;

}  // namespace convtrace::engine

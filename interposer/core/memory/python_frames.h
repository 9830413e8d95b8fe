#pragma once
/// @file python_frames.h
/// Lines of Python on the calling thread's stack, read where they lie: an allocation happens without
/// the GIL, which is neither taken nor waited for. A thread's own frames stand still while it is in
/// native code.
///
/// A frame is one word, as a return address is, with the highest bit set, which no address of a
/// program has.
///
/// Threads:  any, concurrently. One that finds the table of places in use gets no frames.
/// Errors:   no frames: of a thread that is none of Python's, where learn_python_frames() has found
///           no layout, from the end of the program on.

#include <cstddef>
#include <span>
#include <string>

#include "interposer/abi/known_frame.h"

namespace convtrace::engine {

inline constexpr size_t kMaxPythonFrames = 32;

/// Called once by a thread of Python that is inside the known frames, given innermost first.
/// @return whether frames can be read from now on.
bool learn_python_frames(std::span<const KnownFrame> known) noexcept;

/// Called before Python frees the states of its threads: no frame is read when this has returned.
void end_python_frames() noexcept;

/// Replaces the interpreter's part of a native stack, and what lies outside of it, by lines.
/// @param stack  room for the frames. @param count  of native frames, innermost first.
/// @return the new count; `count` where there are no lines.
[[nodiscard]] size_t add_python_frames(std::span<void*> stack, size_t count) noexcept;

[[nodiscard]] bool is_python_frame(const void* frame) noexcept;
/// @return "function (file:line)".
[[nodiscard]] std::string python_frame_text(const void* frame);

}  // namespace convtrace::engine

#pragma once
/// @file tracebacks.h
/// Frames of the observer in the traceback of an error that goes on to the program: one that a handler of a
/// signal has raised while the observer ran.
///
/// Threads:  those that hold the GIL.
/// Errors:   a traceback that cannot be changed stays as it is.

#include "interposer/core/python/api.h"

namespace convtrace::python {

/// @param function  takes the frames off an error's traceback, and gives what is left (base/frames.py). Kept for as long as
/// the process lives; null for none.
void hide_frames_by(PyObject* function);

/// For the error that is set.
void hide_frames();

}  // namespace convtrace::python

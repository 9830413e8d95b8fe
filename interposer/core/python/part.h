#pragma once
/// @file part.h
/// The functions that the observer gets from this library.
///
/// Threads:  those that hold the GIL.

#include "interposer/core/python/hot_path.h"

namespace convtrace::python {

/// Makes the functions of hot_path.h for one observer, on the thread that imports torch.
/// @param config  the dictionary of base/native.py; borrowed.
/// @return a new dictionary of functions; null with Python's error set, or without one where this
/// process has not all of api.def.
PyObject* make_part(PyObject* config, const Port& port) noexcept;

/// Makes a builtin that replaces a function and calls the observer before and after it. No frame of
/// Python stands between the program and the original, so that stacks, levels of warnings, tracebacks
/// and the output of autograd's anomaly mode are those of the program.
///
/// Called by Python with (original, before, after, owner, of_class). `before(args, kwargs)`, with kwargs
/// None where there are none, returns the state for `after(state, result, raised)`; None: `after` is not
/// called. `owner`: the class whose method the original is, with its object first in `args`, a class
/// where `of_class`; None for a function. An exception of the observer's functions ends the call: they
/// let only the program's through.
/// @return the function or descriptor; None where kMostSurrounded others have one.
PyObject* surrounded(PyObject* self, PyObject* const* args, Py_ssize_t given) noexcept;

}  // namespace convtrace::python

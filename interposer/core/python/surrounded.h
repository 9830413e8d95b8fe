#pragma once
/// @file surrounded.h
/// A builtin in the place of a function: it calls the observer before and behind the original. No frame
/// of Python stands between the program and the original, so that stacks, levels of warnings, tracebacks
/// and what anomaly mode of autograd prints are those of the program.
///
/// Threads:  those that hold the GIL.
/// Errors:   what the observer's functions raise, ends the call: they let through only the program's.

#include "interposer/core/python/api.h"

namespace convtrace::python {

/// Called by Python with (original, before, after, owner, of_class). `before(args, kwargs)`, kwargs None
/// where there are none, gives what `after(state, result, raised)` takes; None: it is not called. `owner`:
/// the class whose method the original is, with its object first in `args`, a class where `of_class`;
/// None for a function.
/// @return the function or descriptor; None where kMostSurrounded others have one.
PyObject* surrounded(PyObject* self, PyObject* const* args, Py_ssize_t given) noexcept;

}  // namespace convtrace::python

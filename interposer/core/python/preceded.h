#pragma once
/// @file preceded.h
/// A builtin function in the place of another one: it calls a function of the observer and then the
/// original. No frame of Python stands between the program and the original, so that stacks, levels
/// of warnings and what anomaly mode of autograd prints are those of the program.
///
/// Threads:  those that hold the GIL.
/// Errors:   what the observer's function raises, ends the call: it lets through only the program's.

#include "interposer/core/python/api.h"

namespace convtrace::python {

/// Called by Python with (original, before): `before` gets the tuple of the positional arguments.
/// @return the function; None where the original is no builtin, or kMostPreceded others have one.
PyObject* preceded(PyObject* self, PyObject* const* args, Py_ssize_t given) noexcept;

}  // namespace convtrace::python

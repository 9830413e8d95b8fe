#pragma once
/// @file part.h
/// Makes the functions of hot_path.h for one observer.
///
/// Threads:  the one that imports torch, holding the GIL.

#include "interposer/core/python/hot_path.h"

namespace convtrace::python {

/// @param config  the dictionary of base/native.py; borrowed.
/// @return a new dictionary of functions; null with Python's error set, or without one where this
/// process has not all of api.def.
PyObject* make_part(PyObject* config, const Port& port) noexcept;

}  // namespace convtrace::python

/// @file python_injection.h
/// Imports the observer into a Python that ignores PYTHONPATH.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_PYTHON_INJECTION_H
#define CONVTRACE_INTERPOSER_PRELOAD_PYTHON_INJECTION_H

#include <stdatomic.h>

/// 1 while the observer may be missing: set at process start, cleared when it is imported.
extern _Atomic(int) convtrace_observer_missing;

/// Asks Python to import the observer soon, on its main thread. Called where PyTorch allocates, on
/// any thread, with or without the GIL.
void convtrace_call_observer(void);

#endif

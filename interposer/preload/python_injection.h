/// @file python_injection.h
/// Brings the observer into a Python that took no notice of PYTHONPATH.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_PYTHON_INJECTION_H
#define CONVTRACE_INTERPOSER_PRELOAD_PYTHON_INJECTION_H

#include <stdatomic.h>

/// Whether it may still be missing: set at process start, cleared once it is there.
extern _Atomic(int) convtrace_observer_missing;

/// Asks Python to look, soon and on its main thread. Any thread, with or without the GIL; called
/// where PyTorch allocates.
void convtrace_call_observer(void);

#endif

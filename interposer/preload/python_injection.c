/// @file python_injection.c
/// `python -I`, `-E` and `-S` import no sitecustomize of ours. Then the first tensors that torch
/// allocates are the sign that the observer is wanted: Python is asked to run a few lines between
/// two instructions of the program, which import it if it is not there.
///
/// Threads:  see python_injection.h; the lines run on Python's main thread.
/// Errors:   none: no Python, or one that cannot, stays without the observer after some attempts.
/// Source:   Py_AddPendingCall, "Initialization, Finalization, and Threads" of Python's C API.

#include "interposer/preload/python_injection.h"

#include <stddef.h>

/// Functions of the executable or of libpython; null where there is neither.
extern int Py_AddPendingCall(int (*function)(void*), void* argument) __attribute__((weak));
extern void* PyImport_GetModuleDict(void) __attribute__((weak));
extern void* PyDict_GetItemString(void* dict, const char* key) __attribute__((weak));
extern int PyRun_SimpleString(const char* code) __attribute__((weak));

_Atomic(int) convtrace_observer_missing = 0;

enum { kAttempts = 1000 };

/// An exec in a namespace of its own: the code would run in the program's __main__. The module is
/// made known only once torch is whole, so that an attempt during its import is not the last.
static const char kCode[] =
    "exec('''\n"
    "import sys\n"
    "def arrive():\n"
    "    import os\n"
    "    torch = sys.modules.get('torch')\n"
    "    if torch is None or getattr(torch.__spec__, '_initializing', False):\n"
    "        return\n"
    "    tree = os.path.dirname(os.path.dirname(os.environ['CONVTRACE_CORE']))\n"
    "    folder = os.path.join(tree, 'share', 'convtrace', 'observer')\n"
    "    sys.path.insert(0, folder)\n"
    "    try:\n"
    "        from convtrace_observer import arrival\n"
    "    finally:\n"
    "        sys.path.remove(folder)\n"
    "    arrival.install()\n"
    "if sys.version_info >= (3, 8):\n"
    "    try:\n"
    "        arrive()\n"
    "    except Exception:\n"
    "        pass\n"
    "''', {})\n";

static _Atomic(int) asked = 0;

static int look(void* argument) {
  static int attempts = 0;
  (void)argument;
  void* modules = PyImport_GetModuleDict();
  const int arrived =
      modules == NULL || PyDict_GetItemString(modules, "convtrace_observer") != NULL;
  if (!arrived) PyRun_SimpleString(kCode);
  if (arrived || ++attempts == kAttempts) atomic_store(&convtrace_observer_missing, 0);
  atomic_store(&asked, 0);
  return 0;
}

void convtrace_call_observer(void) {
  if (Py_AddPendingCall == NULL || PyImport_GetModuleDict == NULL || PyDict_GetItemString == NULL ||
      PyRun_SimpleString == NULL) {
    atomic_store(&convtrace_observer_missing, 0);
    return;
  }
  if (atomic_exchange(&asked, 1) == 0 && Py_AddPendingCall(look, NULL) != 0) {
    atomic_store(&asked, 0); /* the list is full: at the next tensor */
  }
}

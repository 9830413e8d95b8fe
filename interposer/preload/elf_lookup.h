/// @file elf_lookup.h
/// Finds functions in the shared objects this process has loaded, without dlsym.
///
/// dlsym is one of the names the stub interposes, so it cannot be asked for the real dlsym; dlvsym
/// needs a glibc version by name and does not exist in musl. The symbol tables in memory are the
/// same everywhere.
///
/// Threads:  any.
/// Errors:   null when there is no such object or symbol. Never allocates.
/// Source:   System V ABI "Dynamic Section"; DT_GNU_HASH as in glibc's elf/dl-lookup.c.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_ELF_LOOKUP_H
#define CONVTRACE_INTERPOSER_PRELOAD_ELF_LOOKUP_H

#include <limits.h>

/// Any function; cast to its type before the call.
typedef void (*convtrace_function)(void);

/// @return the definition of function `symbol` that comes after this library in load order: what
/// callers would have bound to without it.
convtrace_function convtrace_find_after_self(const char* symbol);

/// @return function `symbol` of the loaded object whose file name begins with `object`
/// ("libcuda.so"). An object in which something was found is kept from being unloaded.
convtrace_function convtrace_find_in(const char* object, const char* symbol);

/// Copies the path of this library, as the loader has it, into `path`.
/// @return 1, or 0 when it does not fit.
int convtrace_own_path(char path[PATH_MAX]);

#endif

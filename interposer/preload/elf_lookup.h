/// @file elf_lookup.h
/// Finds functions in the shared objects this process has loaded, without dlsym.
///
/// The preload library defines dlsym itself, so it cannot ask it for the real dlsym. dlvsym needs
/// the name of a glibc version and does not exist in musl. The symbol tables in memory have the
/// same format everywhere.
///
/// Threads:  any.
/// Errors:   null when there is no such object or symbol. Never allocates.
/// Source:   System V ABI "Dynamic Section"; DT_GNU_HASH as in glibc's elf/dl-lookup.c.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_ELF_LOOKUP_H
#define CONVTRACE_INTERPOSER_PRELOAD_ELF_LOOKUP_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/// Any function; cast to its type before the call.
typedef void (*convtrace_function)(void);

/// @return the definition of `symbol` in the libraries behind this one in load order: the one that
/// callers would have been bound to without this library.
convtrace_function convtrace_find_after_self(const char* symbol);

/// @return function `symbol` of the loaded object whose file name begins with `object`
/// ("libcuda.so"). The object is kept from being unloaded if the function was found.
convtrace_function convtrace_find_in(const char* object, const char* symbol);

/// A loaded object.
struct convtrace_object {
  uintptr_t begin, end; /* range of its memory */
  int is_behind;        /* it comes after this one in load order */
};

/// Lists the objects beside this one that define `symbol`, in load order, at most `most`.
/// @return how many.
size_t convtrace_objects_with(const char* symbol, struct convtrace_object* objects, size_t most);

/// Keeps the object that contains `address` from being unloaded. Calls dlopen, so it must not be
/// called in a callback of dl_iterate_phdr.
void convtrace_keep_object(uintptr_t address);

/// @return function `symbol` of the loaded object that contains `address`.
convtrace_function convtrace_find_at(uintptr_t address, const char* symbol);

/// @return how many objects have been loaded so far: it changes with each one.
unsigned long long convtrace_objects_loaded(void);

/// Copies the path of this library, as the loader has it, into `path`.
/// @return 1, or 0 when it does not fit.
int convtrace_own_path(char path[PATH_MAX]);

#endif

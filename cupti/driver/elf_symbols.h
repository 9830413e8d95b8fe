#pragma once
/// @file elf_symbols.h
/// Looks a symbol up in exactly one loaded library, by its own ELF tables.
///
/// Why not dlsym: the preload stub interposes dlsym and answers the names of the launch functions
/// with its wrappers, and other preloaded tools do the same. What convtrace calls must be the
/// library's own code.
///
/// Threads:  reentrant; the library must stay loaded.
/// Source:   System V gABI "Dynamic Linking"; glibc's DT_GNU_HASH.

namespace convtrace::cupti {

/// @param library from dlopen.
/// @return the address of the function that `library` itself defines under `name`, else null.
[[nodiscard]] void* find_own_symbol(void* library, const char* name) noexcept;

/// @return the path the loader knows `library` by, "" when unknown; lives as long as the library.
[[nodiscard]] const char* library_path(void* library) noexcept;

}  // namespace convtrace::cupti

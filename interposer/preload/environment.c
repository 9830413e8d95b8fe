/// @file environment.c
/// All that the preload library does by itself: a few environment variables at process start, by
/// which the engine and the observer get into those descendants that train.
///
/// Threads:  runs before main.
/// Errors:   anything missing leaves the process as it was. Prints nothing.

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cupti/abi/hooks_v1.h"
#include "interposer/preload/elf_lookup.h"
#include "interposer/preload/gate.h"
#include "interposer/preload/poison.h"
#include "interposer/preload/python_injection.h"
#include "interposer/preload/quarantine.h"

_Atomic(int) convtrace_cpu_alloc_v1 = 0;
int convtrace_other_injection = 0;
char convtrace_start_folder_v1[PATH_MAX];
extern int convtrace_explained_v1;
void convtrace_await_exit(void); /* exit_notice.c */

static int is(const char* text, const char* expected) {
  return text != NULL && strcmp(text, expected) == 0;
}

/// Writes into `path` what `name` is in the tree that holds `library`, if it exists. The tree is
/// `folders` above the file. One system call: resolving every path again costs a child that only
/// runs for half a millisecond as much as loading this library.
static int find_in_tree(const char* library, int folders, const char* name, char path[PATH_MAX]) {
  size_t end = strlen(library);
  for (int i = 0; i < folders; ++i) {
    while (end > 0 && library[--end] != '/') continue;
  }
  const size_t length = strlen(name);
  if (end + length >= PATH_MAX) return 0;
  memcpy(path, library, end);
  memcpy(path + end, name, length + 1);
  return access(path, F_OK) == 0;
}

/// Writes where this library and, beside it, the engine lie. A symbolic link to this library alone
/// is followed only then: that takes a system call for every folder of the path.
static int find_engine(char self[PATH_MAX], char engine[PATH_MAX]) {
  char loaded[PATH_MAX];
  if (!convtrace_own_path(self)) return 0;
  if (self[0] == '/' && find_in_tree(self, 1, "/libconvtrace-core.so", engine)) return 1;
  strcpy(loaded, self);
  return realpath(loaded, self) != NULL && find_in_tree(self, 1, "/libconvtrace-core.so", engine);
}

/// Makes `folder` the first entry of PYTHONPATH, and its only mention there. An empty entry means
/// the current folder to Python, so none is added.
static void prepend_to_pythonpath(const char* folder) {
  const char* old = getenv("PYTHONPATH");
  if (old == NULL) old = "";
  const size_t length = strlen(folder);
  char* value = malloc(length + strlen(old) + 2);
  if (value == NULL) return;
  memcpy(value, folder, length);
  char* end = value + length;
  for (const char* entry = old; *old != '\0';) {
    const size_t size = strcspn(entry, ":");
    if (size != length || memcmp(entry, folder, length) != 0) {
      *end++ = ':';
      memcpy(end, entry, size);
      end += size;
    }
    if (entry[size] == '\0') break;
    entry += size + 1;
  }
  *end = '\0';
  setenv("PYTHONPATH", value, 1);
  free(value);
}

/// Names PyTorch's own allocator where the list of options `name` asks for another: only that one
/// goes by PYTORCH_NO_CUDA_MEMORY_CACHING. All other options stay.
static void use_own_allocator(const char* name) {
  static const char kOption[] = "backend:";
  static const char kNative[] = "native";
  const char* old = getenv(name);
  const char* option = old;
  while (option != NULL && strncmp(option, kOption, sizeof kOption - 1) != 0) {
    option = strchr(option, ',');
    if (option != NULL) ++option;
  }
  if (option == NULL) return;
  const size_t before = (size_t)(option - old) + sizeof kOption - 1;
  const char* rest = old + before + strcspn(old + before, ",");
  char* value = malloc(before + sizeof kNative + strlen(rest));
  if (value == NULL) return;
  memcpy(value, old, before);
  memcpy(value + before, kNative, sizeof kNative - 1);
  strcpy(value + before + sizeof kNative - 1, rest);
  setenv(name, value, 1);
  free(value);
}

/// CONVTRACE_STRICT_ALLOC: each tensor has memory of its own from the driver, and gives it back, so
/// that a stale pointer never lies in memory that a cache keeps. Frameworks read this when they are
/// loaded.
static void use_no_caches(void) {
  if (!is(getenv("CONVTRACE_STRICT_ALLOC"), "1")) return;
  setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1);
  use_own_allocator("PYTORCH_ALLOC_CONF");
  use_own_allocator("PYTORCH_CUDA_ALLOC_CONF");
  setenv("XLA_PYTHON_CLIENT_ALLOCATOR", "platform", 1);
  setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false", 1);
}

__attribute__((constructor)) static void enter_process(void) {
  char self[PATH_MAX], path[PATH_MAX];
  /* First: bash has a getenv of its own, which finds nothing more after a setenv this early. */
  convtrace_await_exit();
  if (is(getenv("CONVTRACE"), "0") || is(getenv("CONVTRACE_MODE"), "off")) {
    convtrace_explained_v1 = 1; /* as asked for */
    /* The driver does not load the engine, also not for a traced process's child. */
    const char* const injection = getenv("CUDA_INJECTION64_PATH");
    if (injection != NULL && find_engine(self, path) && is(injection, path))
      unsetenv("CUDA_INJECTION64_PATH");
    return;
  }
  if (!find_engine(self, path)) return;
  if (getcwd(convtrace_start_folder_v1, sizeof convtrace_start_folder_v1) == NULL)
    convtrace_start_folder_v1[0] = '\0';
  setenv("CUDA_INJECTION64_PATH", path, 0); /* another tool's stays */
  convtrace_other_injection = !is(getenv("CUDA_INJECTION64_PATH"), path);
  setenv("CONVTRACE_CORE", path, 1);
  if (find_in_tree(self, 2, "/share/convtrace/observer", path)) {
    prepend_to_pythonpath(path);
    atomic_store(&convtrace_observer_missing, 1);
  }
  const int cpu_reports = !is(getenv("CONVTRACE_CPU_ALLOC"), "off");
  atomic_store(&convtrace_cpu_alloc_v1, cpu_reports);
  const int poison = is(getenv("CONVTRACE_POISON"), "1");
  convtrace_poisons = cpu_reports && poison;
  const int quarantine = is(getenv("CONVTRACE_QUARANTINE"), "1");
  convtrace_keeps_memory = poison || quarantine;
  if (quarantine) convtrace_begin_quarantine();
  use_no_caches();
}

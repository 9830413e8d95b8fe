/* An auditor of the loader (rtld-audit(7)): writes each request that anything in the process makes
 * of cuGetProcAddress, as "name version flags", to the file CONVTRACE_TEST_REQUESTS. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*get_v1_fn)(const char*, void**, int, uint64_t);
typedef int (*get_v2_fn)(const char*, void**, int, uint64_t, int*);

static get_v1_fn real_v1;
static get_v2_fn real_v2;

static void write_down(const char* name, int version, uint64_t flags) {
  FILE* file = fopen(getenv("CONVTRACE_TEST_REQUESTS"), "a");
  if (file == NULL) return;
  if (*name != 0) fprintf(file, "%s %d %d\n", name, version, (int)flags);
  fclose(file);
}

static int get_v1(const char* name, void** function, int version, uint64_t flags);
static int get_v2(const char* name, void** function, int version, uint64_t flags, int* status);

/* A program that asks for the function by itself goes on asking us. */
static void stay(void** function) {
  if (function == NULL) return;
  if (*function == (void*)real_v1) *function = (void*)get_v1;
  if (*function == (void*)real_v2) *function = (void*)get_v2;
}

static int get_v1(const char* name, void** function, int version, uint64_t flags) {
  write_down(name, version, flags);
  const int result = real_v1(name, function, version, flags);
  if (result == 0) stay(function);
  return result;
}

static int get_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  write_down(name, version, flags);
  const int result = real_v2(name, function, version, flags, status);
  if (result == 0) stay(function);
  return result;
}

unsigned la_version(unsigned version) { return version; }

unsigned la_objopen(struct link_map* map, Lmid_t space, uintptr_t* cookie) {
  (void)map, (void)space, (void)cookie;
  return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym* symbol, unsigned index, uintptr_t* from, uintptr_t* to,
                       unsigned* flags, const char* name) {
  (void)index, (void)from, (void)to, (void)flags;
  if (strcmp(name, "cuGetProcAddress") == 0) {
    real_v1 = (get_v1_fn)symbol->st_value;
    return (uintptr_t)get_v1;
  }
  if (strcmp(name, "cuGetProcAddress_v2") == 0) {
    real_v2 = (get_v2_fn)symbol->st_value;
    return (uintptr_t)get_v2;
  }
  return symbol->st_value;
}

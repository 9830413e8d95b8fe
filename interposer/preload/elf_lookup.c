#include "interposer/preload/elf_lookup.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/// The parts of one object's dynamic section that a lookup needs.
struct object {
  const struct dl_phdr_info* info;
  const ElfW(Sym) * symbols;
  const char* strings;
  const uint32_t* gnu_hash;
  const uint32_t* sysv_hash;
  const uint16_t* versions;
};

struct search {
  const char* object; /* null: any object after this library */
  const char* symbol;
  int past_self;
  convtrace_function found;
  char path[PATH_MAX]; /* path of the object in which it was found */
};

static int covers(const struct dl_phdr_info* info, uintptr_t address) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_LOAD && address - begin < header->p_memsz) return 1;
  }
  return 0;
}

static int is_self(const struct dl_phdr_info* info) {
  return covers(info, (uintptr_t)&convtrace_find_after_self);
}

/// glibc relocates the addresses in a dynamic section when it loads an object, musl and the vDSO
/// leave them as they are in the file.
static const void* dynamic_pointer(const struct dl_phdr_info* info, uintptr_t value) {
  if (!covers(info, value)) value += info->dlpi_addr;
  return covers(info, value) ? (const void*)value : NULL;
}

static int open_object(const struct dl_phdr_info* info, struct object* object) {
  memset(object, 0, sizeof *object);
  object->info = info;
  const ElfW(Dyn)* dynamic = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    dynamic = (const ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  }
  for (; dynamic != NULL && dynamic->d_tag != DT_NULL; ++dynamic) {
    const void* pointer = dynamic_pointer(info, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_SYMTAB) object->symbols = pointer;
    if (dynamic->d_tag == DT_STRTAB) object->strings = pointer;
    if (dynamic->d_tag == DT_GNU_HASH) object->gnu_hash = pointer;
    if (dynamic->d_tag == DT_HASH) object->sysv_hash = pointer;
    if (dynamic->d_tag == DT_VERSYM) object->versions = pointer;
  }
  return object->symbols != NULL && object->strings != NULL;
}

/// Defined functions only. Of several versions the default one: the others carry the hidden bit.
static convtrace_function value_of(const struct object* object, uint32_t index, const char* name) {
  const ElfW(Sym)* symbol = &object->symbols[index];
  const uint16_t kHidden = 0x8000;
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0) return NULL;
  if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) return NULL;
  if (object->versions != NULL && (object->versions[index] & kHidden) != 0) return NULL;
  if (strcmp(object->strings + symbol->st_name, name) != 0) return NULL;
  return (convtrace_function)(object->info->dlpi_addr + symbol->st_value);
}

static convtrace_function find_by_gnu_hash(const struct object* object, const char* name) {
  const uint32_t* table = object->gnu_hash;
  const uint32_t bucket_count = table[0], first_symbol = table[1], bloom_words = table[2];
  const uint32_t* buckets = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = buckets + bucket_count;
  if (bucket_count == 0) return NULL;
  uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + (unsigned char)*c;
  uint32_t index = buckets[hash % bucket_count];
  if (index < first_symbol) return NULL;
  for (;; ++index) {
    const uint32_t entry = chain[index - first_symbol];
    const convtrace_function value =
        (entry | 1) == (hash | 1) ? value_of(object, index, name) : NULL;
    if (value != NULL || (entry & 1) != 0) return value;
  }
}

static convtrace_function find_by_sysv_hash(const struct object* object, const char* name) {
  const uint32_t symbol_count = object->sysv_hash[1];
  for (uint32_t index = 1; index < symbol_count; ++index) {
    const convtrace_function value = value_of(object, index, name);
    if (value != NULL) return value;
  }
  return NULL;
}

static convtrace_function find_in_object(const struct object* object, const char* symbol) {
  if (object->gnu_hash != NULL) return find_by_gnu_hash(object, symbol);
  return object->sysv_hash != NULL ? find_by_sysv_hash(object, symbol) : NULL;
}

static int has_file_name(const struct dl_phdr_info* info, const char* prefix) {
  if (info->dlpi_name == NULL) return 0;
  const char* slash = strrchr(info->dlpi_name, '/');
  return strncmp(slash != NULL ? slash + 1 : info->dlpi_name, prefix, strlen(prefix)) == 0;
}

static int search_object(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct search* search = data;
  if (is_self(info)) {
    search->past_self = 1;
    return 0;
  }
  const int wanted =
      search->object == NULL ? search->past_self : has_file_name(info, search->object);
  struct object object;
  if (!wanted || !open_object(info, &object)) return 0;
  search->found = find_in_object(&object, search->symbol);
  if (search->found == NULL) return 0;
  strncpy(search->path, info->dlpi_name, sizeof search->path - 1);
  return 1;
}

convtrace_function convtrace_find_after_self(const char* symbol) {
  struct search search = {.symbol = symbol};
  dl_iterate_phdr(search_object, &search);
  return search.found;
}

static void keep_loaded(const char* path) {
  void* (*open_library)(const char*, int) =
      (void* (*)(const char*, int))convtrace_find_after_self("dlopen");
  if (open_library != NULL) open_library(path, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

convtrace_function convtrace_find_in(const char* object, const char* symbol) {
  struct search search = {.object = object, .symbol = symbol};
  dl_iterate_phdr(search_object, &search);
  if (search.found != NULL) keep_loaded(search.path);
  return search.found;
}

struct listing {
  const char* symbol;
  int past_self;
  struct convtrace_object* objects;
  size_t count, most;
};

static int list_object(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct listing* listing = data;
  struct object object;
  if (is_self(info)) {
    listing->past_self = 1;
    return 0;
  }
  if (!open_object(info, &object) || find_in_object(&object, listing->symbol) == NULL) return 0;
  struct convtrace_object* entry = &listing->objects[listing->count++];
  *entry = (struct convtrace_object){UINTPTR_MAX, 0, listing->past_self};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    if (header->p_type != PT_LOAD) continue;
    if (begin < entry->begin) entry->begin = begin;
    if (begin + header->p_memsz > entry->end) entry->end = begin + header->p_memsz;
  }
  return listing->count == listing->most;
}

/// The object that contains an address: its function `symbol` and its path.
struct place {
  uintptr_t address;
  const char* symbol; /* null: not asked for */
  convtrace_function found;
  char path[PATH_MAX];
};

static int search_place(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct place* place = data;
  struct object object;
  if (!covers(info, place->address)) return 0;
  if (place->symbol == NULL) {
    strncpy(place->path, info->dlpi_name, sizeof place->path - 1);
  } else if (open_object(info, &object)) {
    place->found = find_in_object(&object, place->symbol);
  }
  return 1;
}

size_t convtrace_objects_with(const char* symbol, struct convtrace_object* objects, size_t most) {
  struct listing listing = {symbol, 0, objects, 0, most};
  dl_iterate_phdr(list_object, &listing);
  return listing.count;
}

void convtrace_keep_object(uintptr_t address) {
  struct place place = {.address = address};
  dl_iterate_phdr(search_place, &place);
  if (place.path[0] != '\0') keep_loaded(place.path);
}

convtrace_function convtrace_find_at(uintptr_t address, const char* symbol) {
  struct place place = {.address = address, .symbol = symbol};
  dl_iterate_phdr(search_place, &place);
  return place.found;
}

static int read_adds(struct dl_phdr_info* info, size_t size, void* data) {
  if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
    *(unsigned long long*)data = info->dlpi_adds;
  return 1;
}

unsigned long long convtrace_objects_loaded(void) {
  unsigned long long adds = 0;
  dl_iterate_phdr(read_adds, &adds);
  return adds;
}

static int copy_own_path(struct dl_phdr_info* info, size_t size, void* path) {
  (void)size;
  if (!is_self(info)) return 0;
  const size_t length = strlen(info->dlpi_name);
  if (length == 0 || length >= PATH_MAX) return 0;
  memcpy(path, info->dlpi_name, length + 1);
  return 1;
}

int convtrace_own_path(char path[PATH_MAX]) { return dl_iterate_phdr(copy_own_path, path); }

#include "cupti/driver/elf_symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace convtrace::cupti {
namespace {

struct DynamicTables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
};

/// On most machines glibc relocates the pointers of the dynamic section; on some it leaves them
/// relative.
template <typename T>
const T* pointer(const link_map& map, ElfW(Addr) value) {
  const ElfW(Addr) address = value < map.l_addr ? value + map.l_addr : value;
  return reinterpret_cast<const T*>(address);
}

DynamicTables read_tables(const link_map& map) {
  DynamicTables tables;
  for (const ElfW(Dyn)* entry = map.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) value = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB: tables.symbols = pointer<ElfW(Sym)>(map, value); break;
      case DT_STRTAB: tables.strings = pointer<char>(map, value); break;
      case DT_GNU_HASH: tables.gnu_hash = pointer<uint32_t>(map, value); break;
      case DT_HASH: tables.sysv_hash = pointer<uint32_t>(map, value); break;
      default: break;
    }
  }
  return tables;
}

bool defines(const DynamicTables& tables, uint32_t index, const char* name) {
  const ElfW(Sym)& symbol = tables.symbols[index];
  const int type = ELF64_ST_TYPE(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_NOTYPE) &&
         strcmp(tables.strings + symbol.st_name, name) == 0;
}

/// Layout of the table: bucket count, first hashed symbol, number of Bloom words, Bloom shift;
/// Bloom filter; buckets; one hash for each symbol, whose lowest bit is set at the end of a bucket.
uint32_t find_by_gnu_hash(const DynamicTables& tables, const char* name) {
  uint32_t hash = 5381;
  for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  const uint32_t bucket_count = tables.gnu_hash[0];
  const uint32_t first = tables.gnu_hash[1];
  const uint32_t bloom_words = tables.gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* buckets = tables.gnu_hash + 4 + bloom_words;
  const uint32_t* hashes = buckets + bucket_count;
  if (bucket_count == 0) return 0;
  uint32_t index = buckets[hash % bucket_count];
  if (index < first) return 0;
  for (;; ++index) {
    const uint32_t other = hashes[index - first];
    if ((other | 1) == (hash | 1) && defines(tables, index, name)) return index;
    if ((other & 1) != 0) return 0;
  }
}

uint32_t find_by_sysv_hash(const DynamicTables& tables, const char* name) {
  const uint32_t symbol_count = tables.sysv_hash[1];
  for (uint32_t index = 1; index < symbol_count; ++index)
    if (defines(tables, index, name)) return index;
  return 0;
}

link_map* map_of(void* library) {
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  return map;
}

}  // namespace

void* find_own_symbol(void* library, const char* name) noexcept {
  const link_map* map = map_of(library);
  if (map == nullptr) return nullptr;
  const DynamicTables tables = read_tables(*map);
  if (tables.symbols == nullptr || tables.strings == nullptr) return nullptr;
  uint32_t index = 0;
  if (tables.gnu_hash != nullptr) {
    index = find_by_gnu_hash(tables, name);
  } else if (tables.sysv_hash != nullptr) {
    index = find_by_sysv_hash(tables, name);
  }
  if (index == 0) return nullptr;
  return reinterpret_cast<void*>(map->l_addr + tables.symbols[index].st_value);
}

const char* library_path(void* library) noexcept {
  const link_map* map = map_of(library);
  return map == nullptr || map->l_name == nullptr ? "" : map->l_name;
}

}  // namespace convtrace::cupti

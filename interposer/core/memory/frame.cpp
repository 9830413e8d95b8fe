#include "interposer/core/memory/frame.h"

#include <dlfcn.h>

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "format/base/build_id.h"
#include "format/base/demangle.h"

namespace convtrace::engine {
namespace {

struct Search {
  uint64_t base;
  std::string build_id;
};

int read_build_id(dl_phdr_info* library, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (library->dlpi_addr != search.base) return 0;
  for (const ElfW(Phdr) & part : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
    if (part.p_type != PT_NOTE || !search.build_id.empty()) continue;
    const auto* const notes = reinterpret_cast<const std::byte*>(library->dlpi_addr + part.p_vaddr);
    search.build_id = build_id_in({notes, part.p_memsz}, part.p_align);
  }
  return 1;
}

}  // namespace

Frame find_frame(void* return_address) {
  Frame frame;
  Dl_info info{};
  void* library = nullptr;
  const uint64_t address = reinterpret_cast<uint64_t>(return_address);
  // The call is before its return address, which may already belong to the next function.
  if (dladdr1(reinterpret_cast<void*>(address - 1), &info, &library, RTLD_DL_LINKMAP) == 0 ||
      library == nullptr) {
    return frame;
  }
  frame.library = static_cast<const link_map*>(library);
  frame.offset = address - frame.library->l_addr;
  if (info.dli_sname != nullptr) {
    char offset[32];
    snprintf(offset, sizeof offset, "+0x%" PRIx64,
             address - reinterpret_cast<uint64_t>(info.dli_saddr));
    frame.function = demangled(info.dli_sname) + offset;
  }
  return frame;
}

std::string path_of(const link_map& library) {
  // The loader has no name for the program itself.
  const char* const name = library.l_name[0] != '\0' ? library.l_name : "/proc/self/exe";
  char path[PATH_MAX];
  return realpath(name, path) != nullptr ? path : "";
}

std::string build_id_of(const link_map& library) {
  Search search{library.l_addr, {}};
  dl_iterate_phdr(&read_build_id, &search);
  return search.build_id;
}

}  // namespace convtrace::engine

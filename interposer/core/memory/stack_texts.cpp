#include "interposer/core/memory/stack_texts.h"

#include <dlfcn.h>

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <vector>

#include "format/base/build_id.h"
#include "format/base/demangle.h"
#include "interposer/core/memory/unwinder.h"

namespace convtrace::engine {
namespace {

struct Frame {
  std::string function;  ///< "my_op(at::Tensor)+0x1c"; empty if no exported function fits
  const link_map* library = nullptr;  ///< the file that contains the address, or null
  uint64_t offset = 0;                ///< the address in that file, as in the file's symbol table
};

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

/// @return the absolute path of a library's file, or of the program's; empty if there is none. Reads the
/// disk.
std::string path_of(const link_map& library) {
  // The loader has no name for the program itself.
  const char* const name = library.l_name[0] != '\0' ? library.l_name : "/proc/self/exe";
  char path[PATH_MAX];
  return realpath(name, path) != nullptr ? path : "";
}

/// @return the build id of a loaded library in hexadecimal; empty if it has none.
std::string build_id_of(const link_map& library) {
  Search search{library.l_addr, {}};
  dl_iterate_phdr(&read_build_id, &search);
  return search.build_id;
}

std::string with_number(const std::string& before, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "0x%" PRIx64, number);
  return before + text;
}

}  // namespace

format::StackId StackTexts::intern(std::span<void* const> return_addresses) {
  if (return_addresses.empty()) return {};
  std::vector<format::StringId> frames;
  const Lock lock(mutex_);
  for (void* const address : without_own_frames(return_addresses)) {
    format::StringId& text = known_[address];
    if (!text) text = definitions_.intern(text_of(address));
    frames.push_back(text);
  }
  return definitions_.intern_stack(frames);
}

std::string StackTexts::text_of(void* return_address) {
  if (is_python_frame(return_address)) return python_frame_text(return_address);
  const Frame frame = find_frame(return_address);
  if (frame.library == nullptr) return with_number("", reinterpret_cast<uint64_t>(return_address));
  const std::string place = with_number(name_of(*frame.library) + '+', frame.offset);
  return frame.function.empty() ? place : frame.function + " (" + place + ")";
}

const std::string& StackTexts::name_of(const link_map& library) {
  std::string& name = names_[&library];
  if (!name.empty()) return name;
  const std::string path = path_of(library);
  const std::string loaded = path.empty() ? library.l_name : path;
  name = loaded.substr(loaded.rfind('/') + 1);
  if (!owners_.emplace(name, &library).second) name = loaded;
  if (path.empty()) return name;
  const std::string build_id = build_id_of(library);
  facts_.set("library." + name, (build_id.empty() ? "-" : build_id) + ' ' + path);
  return name;
}

}  // namespace convtrace::engine

#include "interposer/core/memory/libunwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "interposer/core/memory/readable.h"

namespace convtrace::engine {
namespace {

#if defined(__aarch64__)
constexpr uint32_t kSlotTypes[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT};
#else
constexpr uint32_t kSlotTypes[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT};
#endif

/// Both ends of the pipe that is none; no descriptor, so that a close of it does nothing.
constexpr int kNoPipe = -2;
std::atomic<bool> g_pipe_wanted{false};

int make_pipe2(int ends[2], int) {
  ends[0] = ends[1] = kNoPipe;
  g_pipe_wanted.store(true);
  return 0;
}

int make_pipe(int ends[2]) { return make_pipe2(ends, 0); }

ssize_t read_pipe(int fd, void* to, size_t bytes) {
  if (fd != kNoPipe) return read(fd, to, bytes);
  errno = EAGAIN;  // an open pipe that is empty
  return -1;
}

ssize_t write_pipe(int fd, const void* from, size_t bytes) {
  if (fd != kNoPipe) return write(fd, from, bytes);
  if (is_readable(from)) return static_cast<ssize_t>(bytes);
  errno = EFAULT;
  return -1;
}

/// As syscall(), which libunwind prefers to write(), since sanitizers read what write() is given.
long call_kernel(long number, long a, long b, long c, long d, long e, long f) {
  if (number == SYS_write && static_cast<int>(a) == kNoPipe)
    return write_pipe(kNoPipe, reinterpret_cast<const void*>(b), static_cast<size_t>(c));
  return syscall(number, a, b, c, d, e, f);
}

struct Replacement {
  const char* function;
  void* ours;
};

/// pipe() is last: until libunwind opens its pipe, the other replacements call the real functions.
const Replacement kReplacements[] = {{"read", reinterpret_cast<void*>(&read_pipe)},
                                     {"write", reinterpret_cast<void*>(&write_pipe)},
                                     {"syscall", reinterpret_cast<void*>(&call_kernel)},
                                     {"pipe", reinterpret_cast<void*>(&make_pipe)},
                                     {"pipe2", reinterpret_cast<void*>(&make_pipe2)}};

/// The relocation tables of a loaded library.
struct Imports {
  explicit Imports(const link_map& map) : base(map.l_addr) {
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      switch (entry->d_tag) {
        case DT_SYMTAB: symbols = at<ElfW(Sym)>(entry->d_un.d_ptr); break;
        case DT_STRTAB: names = at<char>(entry->d_un.d_ptr); break;
        case DT_JMPREL: calls = at<ElfW(Rela)>(entry->d_un.d_ptr); break;
        case DT_PLTRELSZ: call_bytes = entry->d_un.d_val; break;
        case DT_RELA: data = at<ElfW(Rela)>(entry->d_un.d_ptr); break;
        case DT_RELASZ: data_bytes = entry->d_un.d_val; break;
        default: break;
      }
    }
  }

  /// glibc has made absolute addresses of them.
  template <typename T>
  [[nodiscard]] const T* at(ElfW(Addr) address) const noexcept {
    return reinterpret_cast<const T*>(address < base ? base + address : address);
  }

  /// @return where the library keeps the address of an imported function; null if it has none.
  [[nodiscard]] void** slot(const char* function) const noexcept {
    for (const auto table : {std::span(calls, call_bytes / sizeof(ElfW(Rela))),
                             std::span(data, data_bytes / sizeof(ElfW(Rela)))}) {
      for (const ElfW(Rela) & entry : table) {
        const uint32_t type = static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info));
        if (type != kSlotTypes[0] && type != kSlotTypes[1]) continue;
        const char* const name = names + symbols[ELF64_R_SYM(entry.r_info)].st_name;
        if (strcmp(name, function) == 0) return reinterpret_cast<void**>(base + entry.r_offset);
      }
    }
    return nullptr;
  }

  ElfW(Addr) base;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * calls = nullptr;
  size_t call_bytes = 0;
  const ElfW(Rela) * data = nullptr;
  size_t data_bytes = 0;
};

struct Page {
  uintptr_t address;
  bool read_only;
};

/// Sets `read_only` if the loader has protected the page after relocation.
int find_protection(dl_phdr_info* library, size_t, void* data) {
  auto& page = *static_cast<Page*>(data);
  for (const ElfW(Phdr) & part : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
    const uintptr_t begin = library->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_RELRO && page.address >= begin && page.address < begin + part.p_memsz)
      page.read_only = true;
  }
  return page.read_only ? 1 : 0;
}

bool store(void** slot, void* function) noexcept {
  Page page{reinterpret_cast<uintptr_t>(slot), false};
  dl_iterate_phdr(&find_protection, &page);
  const uintptr_t size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const start = reinterpret_cast<void*>(page.address & ~(size - 1));
  if (page.read_only && mprotect(start, size, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(slot, function, __ATOMIC_RELEASE);
  if (page.read_only) mprotect(start, size, PROT_READ);
  return true;
}

/// Calls that the library does not make are left out. @return false if one could not be replaced.
bool replace_pipe(const Imports& imports) noexcept {
  for (const Replacement& replacement : kReplacements) {
    void** const slot = imports.slot(replacement.function);
    if (slot != nullptr && !store(slot, replacement.ours)) return false;
  }
  return true;
}

/// Opens the copy of libunwind that is installed beside the engine.
void* open_beside_us() {
  Dl_info us{};
  if (dladdr(reinterpret_cast<void*>(&open_libunwind), &us) == 0 || us.dli_fname == nullptr)
    return nullptr;
  std::string path = us.dli_fname;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return nullptr;
  path.resize(slash + 1);
  path += "libunwind.so.8";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Backtrace open_libunwind() noexcept {
  void* library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = open_beside_us();
  if (library == nullptr) return nullptr;
  const auto walk = reinterpret_cast<Backtrace>(dlsym(library, "unw_backtrace"));
  link_map* map = nullptr;
  if (walk == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  const Imports imports(*map);
  if (imports.slot("pipe2") == nullptr && imports.slot("pipe") == nullptr) return walk;
  if (!replace_pipe(imports)) return nullptr;
  void* frames[8];
  // The first walk of a process opens the pipe, and sees addresses that are all new.
  return walk(frames, 8) > 0 && g_pipe_wanted.load() ? walk : nullptr;
}

}  // namespace convtrace::engine

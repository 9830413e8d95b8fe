#pragma once
/// @file frame.h
/// A return address as people and `convtrace findings` read it.
///
/// Threads:  any; take the loader's lock, and read the disk for path_of: rare paths only.
/// Source:   dladdr(3), dl_iterate_phdr(3), elf(5) "Notes".

#include <link.h>

#include <cstdint>
#include <string>

namespace convtrace::engine {

struct Frame {
  std::string function;               ///< "my_op(at::Tensor)+0x1c"; empty if no exported name fits
  const link_map* library = nullptr;  ///< loaded file that it lies in; null if in none
  uint64_t offset = 0;  ///< of the address in that file, counted as its symbol table counts
};

[[nodiscard]] Frame find_frame(void* return_address);

/// @return the absolute path of the file of a library, or of the program; empty if there is none.
[[nodiscard]] std::string path_of(const link_map& library);

/// @return the build id of a loaded library in hexadecimal; empty if it was linked without.
[[nodiscard]] std::string build_id_of(const link_map& library);

}  // namespace convtrace::engine

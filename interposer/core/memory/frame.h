#pragma once
/// @file frame.h
/// Converts a return address into the text that people and `convtrace findings` read.
///
/// Threads:  any. The functions take the loader's lock, and path_of reads the disk: for rare paths
///           only.
/// Source:   dladdr(3), dl_iterate_phdr(3), elf(5) "Notes".

#include <link.h>

#include <cstdint>
#include <string>

namespace convtrace::engine {

struct Frame {
  std::string function;  ///< "my_op(at::Tensor)+0x1c"; empty if no exported function fits
  const link_map* library = nullptr;  ///< the file that contains the address, or null
  uint64_t offset = 0;                ///< the address in that file, as in the file's symbol table
};

[[nodiscard]] Frame find_frame(void* return_address);

/// @return the absolute path of a library's file, or of the program's; empty if there is none.
[[nodiscard]] std::string path_of(const link_map& library);

/// @return the build id of a loaded library in hexadecimal; empty if it has none.
[[nodiscard]] std::string build_id_of(const link_map& library);

}  // namespace convtrace::engine

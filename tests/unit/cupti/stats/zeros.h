#pragma once
/// @file zeros.h
/// Memory of any size that takes none as long as it is only read.

#include <sys/mman.h>

#include <cstddef>

#include "tests/support/catch.h"

namespace convtrace::stats::test {

class Zeros {
 public:
  explicit Zeros(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Zeros() { munmap(data_, bytes_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace convtrace::stats::test

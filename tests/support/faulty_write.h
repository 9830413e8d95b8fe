#pragma once
/// @file faulty_write.h
/// Injects faults into the system call of file_sink.cpp. The test program is linked with
/// -Wl,--wrap=pwritev, so that the tested code is the shipped one.

#include <cstddef>
#include <cstdint>
#include <deque>

namespace convtrace::test {

/// The behaviour of the next write.
struct WriteFault {
  int error = 0;       ///< it fails with this errno
  size_t at_most = 0;  ///< otherwise it writes at most so many bytes
};

/// During its lifetime writes follow the plan; afterwards they are ordinary.
class FaultyWrites {
 public:
  explicit FaultyWrites(std::deque<WriteFault> plan);
  /// A disk with room for so many bytes in one file.
  static FaultyWrites disk_of(uint64_t bytes);
  ~FaultyWrites();
  FaultyWrites(const FaultyWrites&) = delete;
  FaultyWrites& operator=(const FaultyWrites&) = delete;

  [[nodiscard]] bool plan_used_up() const;

 private:
  explicit FaultyWrites(uint64_t disk_bytes);
};

}  // namespace convtrace::test

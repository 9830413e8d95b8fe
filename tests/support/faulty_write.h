#pragma once
/// @file faulty_write.h
/// Faults in the system call that file_sink.cpp writes with. The test program is linked with
/// -Wl,--wrap=pwritev, so that the code under test is the shipped one.

#include <cstddef>
#include <cstdint>
#include <deque>

namespace convtrace::test {

/// What the next write does.
struct WriteFault {
  int error = 0;       ///< fails with this errno
  size_t at_most = 0;  ///< else writes no more than so many bytes
};

/// While alive, writes follow the plan; after it they are ordinary.
class FaultyWrites {
 public:
  explicit FaultyWrites(std::deque<WriteFault> plan);
  /// A disk with room for so many bytes of one file.
  static FaultyWrites disk_of(uint64_t bytes);
  ~FaultyWrites();
  FaultyWrites(const FaultyWrites&) = delete;
  FaultyWrites& operator=(const FaultyWrites&) = delete;

  [[nodiscard]] bool plan_used_up() const;

 private:
  explicit FaultyWrites(uint64_t disk_bytes);
};

}  // namespace convtrace::test

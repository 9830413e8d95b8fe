#pragma once
/// @file memory.h
/// Device memory that the host cannot touch: every address handed out lies in a PROT_NONE mapping,
/// and the bytes lie in a second, hidden mapping of the same file.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace fakecuda {

class DeviceMemory {
 public:
  DeviceMemory();

  /// @return 0 when the arena or `FAKECUDA_MEMORY` is used up. Freed addresses are handed out
  /// again, lowest first.
  /// @param ordered by a stream: it is there when its turn has come.
  uint64_t allocate(size_t bytes, bool ordered = false);
  void arrive(uint64_t address);
  /// @return false if nothing live begins there.
  bool free(uint64_t address);

  /// Address space without memory (cuMemAddressReserve), and memory put there (cuMemMap).
  uint64_t reserve(size_t bytes);
  bool unreserve(uint64_t address);
  bool map(uint64_t address, size_t bytes);
  bool unmap(uint64_t address, size_t bytes);

  /// Memory that host and device use by the same address; the device also by one that lies this
  /// much higher.
  static constexpr uint64_t kAlias = uint64_t{1} << 46;
  void add_shared(const void* pointer, size_t bytes);
  bool remove_shared(const void* pointer);

  /// @return where the host can reach [address, address + bytes), or null if that is not inside one
  /// live range.
  void* translate(uint64_t address, size_t bytes);

  /// A live range, as cuPointerGetAttributes tells of it.
  struct Facts {
    uint64_t base = 0;
    uint64_t id = 0;  ///< of no other range
    bool shared = false;
    bool ordered = false;
  };
  std::optional<Facts> facts(uint64_t address);
  [[nodiscard]] size_t limit() const { return limit_; }
  [[nodiscard]] size_t available();

 private:
  struct Range {
    size_t bytes = 0;
    bool shared = false;
    uint64_t id = 0;
    bool ordered = false;  ///< allocated in the order of a stream
    bool there = true;
  };

  uint64_t take_space(size_t bytes);
  void give_space(uint64_t address, size_t bytes);
  void discard(uint64_t address, size_t bytes);

  std::mutex mutex_;
  uint64_t device_base_ = 0;
  char* alias_ = nullptr;
  int file_ = -1;
  size_t limit_ = 0;
  size_t in_use_ = 0;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Range> live_;
  std::map<uint64_t, size_t> reserved_;
  std::map<uint64_t, size_t> space_;  ///< free address space
};

}  // namespace fakecuda

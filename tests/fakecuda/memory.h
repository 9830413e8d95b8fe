#pragma once
/// @file memory.h
/// Device memory that the host cannot access: every address lies in a PROT_NONE mapping, and its
/// bytes lie in a second, hidden mapping of the same file.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace fakecuda {

class DeviceMemory {
 public:
  DeviceMemory();

  /// @return 0 when the arena or `FAKECUDA_MEMORY` is used up. Freed addresses are reused, lowest
  /// first.
  /// @param ordered  by a stream: the memory exists when the stream reaches the allocation.
  uint64_t allocate(size_t bytes, bool ordered = false);
  void arrive(uint64_t address);
  /// @return false if no live range begins there.
  bool free(uint64_t address);

  /// Reserves address space (cuMemAddressReserve), and maps memory into it (cuMemMap).
  uint64_t reserve(size_t bytes);
  bool unreserve(uint64_t address);
  bool map(uint64_t address, size_t bytes);
  bool unmap(uint64_t address, size_t bytes);

  /// Memory that host and device use by the same address; the device can also use it by an address
  /// that is this much higher.
  static constexpr uint64_t kAlias = uint64_t{1} << 46;
  void add_shared(const void* pointer, size_t bytes);
  bool remove_shared(const void* pointer);

  /// @return the host's pointer to [address, address + bytes); null if that is not inside one live
  /// range.
  void* translate(uint64_t address, size_t bytes);

  /// The attributes of a live range for cuPointerGetAttributes.
  struct Facts {
    uint64_t base = 0;
    uint64_t id = 0;  ///< unique
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

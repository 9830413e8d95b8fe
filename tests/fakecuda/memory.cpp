#include "tests/fakecuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>

namespace fakecuda {
namespace {

constexpr size_t kArenaBytes = size_t{16} << 30;  // address space only; pages come with their use
constexpr size_t kGranularity = 4096;  // whole pages, so that freed ones can be discarded

size_t round_up(size_t bytes) { return (bytes + kGranularity - 1) / kGranularity * kGranularity; }

}  // namespace

DeviceMemory::DeviceMemory() {
  file_ = memfd_create("fakecuda", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kArenaBytes) != 0) abort();
  void* device =
      mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* alias =
      mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (device == MAP_FAILED || alias == MAP_FAILED) abort();
  device_base_ = reinterpret_cast<uint64_t>(device);
  alias_ = static_cast<char*>(alias);
  const char* limit = getenv("FAKECUDA_MEMORY");
  limit_ = limit == nullptr ? kArenaBytes : strtoull(limit, nullptr, 10);
  space_[device_base_] = kArenaBytes;
}

uint64_t DeviceMemory::take_space(size_t bytes) {
  for (auto it = space_.begin(); it != space_.end(); ++it) {
    const auto [address, available] = *it;
    if (available < bytes) continue;
    space_.erase(it);
    if (available > bytes) space_[address + bytes] = available - bytes;
    return address;
  }
  return 0;
}

void DeviceMemory::give_space(uint64_t address, size_t bytes) {
  auto it = space_.emplace(address, bytes).first;
  if (const auto next = std::next(it); next != space_.end() && address + bytes == next->first) {
    it->second += next->second;
    space_.erase(next);
  }
  if (it == space_.begin()) return;
  const auto before = std::prev(it);
  if (before->first + before->second != address) return;
  before->second += it->second;
  space_.erase(it);
}

void DeviceMemory::discard(uint64_t address, size_t bytes) {
  (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(address - device_base_), static_cast<off_t>(round_up(bytes)));
}

uint64_t DeviceMemory::allocate(size_t bytes, bool ordered) {
  const std::lock_guard lock(mutex_);
  if (in_use_ + bytes > limit_) return 0;
  const uint64_t address = take_space(round_up(bytes));
  if (address == 0) return 0;
  in_use_ += bytes;
  live_[address] = {bytes, false, ++last_id_, ordered, !ordered};
  return address;
}

void DeviceMemory::arrive(uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (const auto it = live_.find(address); it != live_.end()) it->second.there = true;
}

bool DeviceMemory::free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(address);
  if (it == live_.end() || it->second.shared) return false;
  in_use_ -= it->second.bytes;
  discard(address, it->second.bytes);
  give_space(address, round_up(it->second.bytes));
  live_.erase(it);
  return true;
}

uint64_t DeviceMemory::reserve(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t address = take_space(round_up(bytes));
  if (address != 0) reserved_[address] = round_up(bytes);
  return address;
}

bool DeviceMemory::unreserve(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto it = reserved_.find(address);
  if (it == reserved_.end()) return false;
  give_space(address, it->second);
  reserved_.erase(it);
  return true;
}

bool DeviceMemory::map(uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto after = reserved_.upper_bound(address);
  if (after == reserved_.begin()) return false;
  const auto range = std::prev(after);
  if (address + bytes > range->first + range->second) return false;
  return live_.emplace(address, Range{.bytes = bytes, .id = ++last_id_}).second;
}

bool DeviceMemory::unmap(uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto first = live_.find(address);
  if (first == live_.end()) return false;
  discard(address, bytes);
  live_.erase(first, live_.lower_bound(address + bytes));
  return true;
}

void DeviceMemory::add_shared(const void* pointer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  live_[reinterpret_cast<uint64_t>(pointer)] = {.bytes = bytes, .shared = true, .id = ++last_id_};
}

bool DeviceMemory::remove_shared(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(reinterpret_cast<uint64_t>(pointer));
  if (it == live_.end() || !it->second.shared) return false;
  live_.erase(it);
  return true;
}

void* DeviceMemory::translate(uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if ((address >> 47) != 0) address -= kAlias;  // what programs have ends there
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return nullptr;
  --it;
  const uint64_t offset = address - it->first;
  if (offset > it->second.bytes || bytes > it->second.bytes - offset) return nullptr;
  if (!it->second.there) return nullptr;
  if (it->second.shared) return reinterpret_cast<void*>(address);
  return alias_ + (address - device_base_);
}

std::optional<DeviceMemory::Facts> DeviceMemory::facts(uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return std::nullopt;
  --it;
  if (address - it->first >= it->second.bytes) return std::nullopt;
  return Facts{it->first, it->second.id, it->second.shared, it->second.ordered};
}

size_t DeviceMemory::available() {
  const std::lock_guard lock(mutex_);
  return limit_ - in_use_;
}

}  // namespace fakecuda

#pragma once
/// @file byte_ring.h
/// A lock-free ring buffer in fixed memory that carries records of any size from one thread to
/// another.
///
/// Threads:  one producer (reserve, commit) and one consumer (front, pop). Either role may move to
///           another thread if the hand-over synchronises.
/// Errors:   reserve() returns null if the ring is full or not mapped; the caller counts the loss.
/// Layout:   a record is a header of 8 bytes and its payload, contiguous, aligned to 8. A record
///           that would cross the end goes to the start, behind a filler. An empty ring restarts at
///           the start, so it touches, and keeps in the caches, only as much memory as was ever
///           needed at once.

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace convtrace::engine {

class ByteRing {
 public:
  /// A payload in the ring, valid until pop().
  struct Record {
    uint32_t tag = 0;
    const std::byte* payload = nullptr;
  };

  ByteRing() = default;
  ~ByteRing() {
    if (data_ != nullptr) munmap(data_, capacity_);
  }
  ByteRing(const ByteRing&) = delete;
  ByteRing& operator=(const ByteRing&) = delete;

  /// Maps the memory. Pages are touched when they are first used.
  /// @param capacity a power of two, at least one page.
  bool map(size_t capacity) noexcept {
    void* memory = mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    capacity_ = capacity;
    data_ = static_cast<std::byte*>(memory);
    return true;
  }
  [[nodiscard]] bool mapped() const noexcept { return data_ != nullptr; }

  /// The largest payload that reserve() can ever accept.
  [[nodiscard]] size_t max_payload() const noexcept { return capacity_ / 2 - sizeof(Header); }

  /// Producer: reserves `bytes`, aligned to 8, or returns null. Nothing is visible before commit().
  std::byte* reserve(size_t bytes, uint32_t tag) noexcept {
    if (data_ == nullptr || bytes > max_payload()) return nullptr;
    const uint64_t head = head_.load(std::memory_order_acquire);
    if (head == written_) start_ = written_;
    const uint64_t need = sizeof(Header) + align_up(bytes);
    const uint64_t until_end = capacity_ - ((written_ - start_) & (capacity_ - 1));
    const uint64_t filler = need > until_end ? until_end : 0;
    if (written_ + filler + need - head > capacity_) return nullptr;
    if (filler != 0) {
      *header_at(written_) = Header{static_cast<uint32_t>(filler), kFiller};
      written_ += filler;
    }
    Header* const header = header_at(written_);
    *header = Header{static_cast<uint32_t>(need), tag};
    written_ += need;
    return reinterpret_cast<std::byte*>(header + 1);
  }

  /// Producer: publishes the reserved record.
  void commit() noexcept { tail_.store(written_, std::memory_order_release); }

  /// Consumer: the present end of the ring. Records up to there are complete.
  [[nodiscard]] uint64_t tail() const noexcept { return tail_.load(std::memory_order_acquire); }

  /// Consumer: the oldest record before `end` (from tail()).
  ///           @return a null payload when there is none.
  Record front(uint64_t end) noexcept {
    uint64_t head = head_.load(std::memory_order_relaxed);
    while (head < end) {
      const Header* const header = header_at(head);
      if (header->tag != kFiller)
        return Record{header->tag, reinterpret_cast<const std::byte*>(header + 1)};
      head += header->bytes;
      head_.store(head, std::memory_order_release);
    }
    return Record{};
  }

  /// Consumer: removes the record of front().
  void pop() noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    head_.store(head + header_at(head)->bytes, std::memory_order_release);
  }

  /// Empties the ring. Only for a fork child, where no other thread uses it.
  void clear() noexcept {
    written_ = start_ = 0;
    tail_.store(0, std::memory_order_relaxed);
    head_.store(0, std::memory_order_relaxed);
  }

  /// Any thread: approximate number of bytes waiting.
  [[nodiscard]] uint64_t used() const noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    return tail > head ? tail - head : 0;
  }
  [[nodiscard]] size_t capacity() const noexcept { return capacity_; }

 private:
  struct Header {
    uint32_t bytes;
    uint32_t tag;
  };
  static constexpr uint32_t kFiller = 0xFFFFFFFF;

  static constexpr uint64_t align_up(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }
  Header* header_at(uint64_t position) const noexcept {
    return reinterpret_cast<Header*>(data_ + ((position - start_) & (capacity_ - 1)));
  }

  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
  // The producer's and the consumer's members lie on separate cache lines.
  alignas(64) uint64_t written_ = 0;
  /// The position that lies at the start of the memory. It changes only while the ring is empty, so
  /// the consumer, which reads it when there is a record, sees the value that tail_ published.
  uint64_t start_ = 0;
  std::atomic<uint64_t> tail_{0};
  alignas(64) std::atomic<uint64_t> head_{0};
};

}  // namespace convtrace::engine

#include "cupti/address_map.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace convtrace::cupti {
namespace {

constexpr size_t kMaxFreed = 64 * 1024;
constexpr size_t kSourceCount = static_cast<size_t>(format::MemorySource::kForeign) + 1;

/// One past the last byte, saturating: a hostile size must not wrap around.
uint64_t end_of(const MemoryRange& range) {
  const uint64_t room = std::numeric_limits<uint64_t>::max() - range.base;
  return range.base + std::min(range.bytes, room);
}

/// Freed ranges, painted over each other in the order of their frees: every address belongs to the
/// one freed last. A range never breaks into more pieces than two per later free, so the pieces
/// are bounded by the ranges.
class FreedRanges {
 public:
  void add(const MemoryRange& range) {
    if (range.bytes == 0) return;
    const uint64_t begin = range.base;
    const uint64_t end = end_of(range);
    cut_at(begin);
    cut_at(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
    pieces_.emplace(begin, Piece{end, range.generation});
    ranges_.emplace(range.generation, range);
    by_age_.push_back(range.generation);
    if (by_age_.size() > kMaxFreed) forget_oldest();
  }

  [[nodiscard]] std::optional<MemoryRange> find(uint64_t address) const {
    const auto piece = piece_at(address);
    if (piece == pieces_.end()) return std::nullopt;
    return ranges_.at(piece->second.generation);
  }

 private:
  struct Piece {
    uint64_t end;
    uint64_t generation;
  };
  using Pieces = std::map<uint64_t, Piece>;

  [[nodiscard]] Pieces::const_iterator piece_at(uint64_t address) const {
    auto it = pieces_.upper_bound(address);
    if (it == pieces_.begin()) return pieces_.end();
    --it;
    return address < it->second.end ? it : pieces_.end();
  }

  void cut_at(uint64_t address) {
    auto it = pieces_.lower_bound(address);
    if (it == pieces_.begin()) return;
    --it;
    if (it->second.end <= address) return;
    pieces_.emplace(address, it->second);
    it->second.end = address;
  }

  void forget_oldest() {
    const auto oldest = ranges_.find(by_age_.front());
    by_age_.pop_front();
    const uint64_t end = end_of(oldest->second);
    for (auto it = pieces_.lower_bound(oldest->second.base);
         it != pieces_.end() && it->first < end;)
      it = it->second.generation == oldest->first ? pieces_.erase(it) : std::next(it);
    ranges_.erase(oldest);
  }

  Pieces pieces_;
  std::map<uint64_t, MemoryRange> ranges_;
  std::deque<uint64_t> by_age_;
};

}  // namespace

struct AddressMap::Impl {
  using Live = std::map<uint64_t, MemoryRange>;

  mutable std::shared_mutex mutex;
  /// By source: ranges of one source never overlap, those of two may nest.
  std::array<Live, kSourceCount> live;
  FreedRanges freed;
  uint64_t last_generation = 0;

  Live& of(format::MemorySource source) { return live[static_cast<size_t>(source)]; }

  MemoryRange end(Live& ranges, Live::iterator it) {
    MemoryRange range = it->second;
    range.freed = true;
    ranges.erase(it);
    freed.add(range);
    return range;
  }
};

AddressMap::AddressMap() : impl_(std::make_unique<Impl>()) {}
AddressMap::~AddressMap() = default;

MemoryRange AddressMap::allocate(MemoryRange range) {
  const std::unique_lock lock(impl_->mutex);
  Impl::Live& live = impl_->of(range.source);
  auto it = live.upper_bound(range.base);
  if (it != live.begin()) {
    const auto before = std::prev(it);
    if (before->first == range.base || end_of(before->second) > range.base) it = before;
  }
  const uint64_t end = end_of(range);
  while (it != live.end() && (it->first < end || it->first == range.base)) {
    const auto next = std::next(it);
    impl_->end(live, it);
    it = next;
  }
  range.generation = ++impl_->last_generation;
  range.freed = false;
  live.emplace(range.base, range);
  return range;
}

std::optional<MemoryRange> AddressMap::release(uint64_t base, format::MemorySource source) {
  const std::unique_lock lock(impl_->mutex);
  Impl::Live& live = impl_->of(source);
  const auto it = live.find(base);
  if (it == live.end()) return std::nullopt;
  return impl_->end(live, it);
}

std::optional<MemoryRange> AddressMap::find(uint64_t address) const {
  const std::shared_lock lock(impl_->mutex);
  const MemoryRange* innermost = nullptr;
  for (const Impl::Live& live : impl_->live) {
    auto it = live.upper_bound(address);
    if (it == live.begin()) continue;
    const MemoryRange& range = std::prev(it)->second;
    if (address >= end_of(range)) continue;
    // Of two ranges of equal size the later one was carved out of the earlier one.
    const bool inside =
        innermost == nullptr || range.bytes < innermost->bytes ||
        (range.bytes == innermost->bytes && range.generation > innermost->generation);
    if (inside) innermost = &range;
  }
  if (innermost != nullptr) return *innermost;
  return impl_->freed.find(address);
}

uint64_t AddressMap::live_count() const {
  const std::shared_lock lock(impl_->mutex);
  uint64_t count = 0;
  for (const Impl::Live& live : impl_->live) count += live.size();
  return count;
}

}  // namespace convtrace::cupti

#pragma once
/// @file address_index.h
/// Finds the record of an address among ranges that do not overlap: sorted arrays of at most 64
/// bases, and an array of the first base of each.
///
/// A tree with a node for each range takes four times the memory and, with a cache miss on each
/// level, four times the time.
///
/// Threads:  one.
/// Memory:   12 bytes a range, arrays at least half full.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace convtrace::judge {

class AddressIndex {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// @return the record of the last range that begins at or before `address`; kNone if none does.
  [[nodiscard]] uint32_t at_or_before(uint64_t address) const {
    const size_t chunk = chunk_of(address);
    if (chunk == chunks_.size()) return kNone;
    const Chunk& in = *chunks_[chunk];
    return in.records[behind(in, address) - 1];
  }

  /// The result of a search for a range that begins at `base`.
  struct Place {
    uint32_t* record = nullptr;    ///< null: no range begins there; valid until the next change
    uint64_t next = ~uint64_t{0};  ///< base of the next range
  };
  [[nodiscard]] Place at(uint64_t base) {
    const size_t chunk = chunk_of(base);
    if (chunk == chunks_.size()) return {};
    Chunk& in = *chunks_[chunk];
    const size_t behind_it = behind(in, base);
    if (in.bases[behind_it - 1] != base) return {};
    Place place{&in.records[behind_it - 1]};
    if (behind_it < in.count) {
      place.next = in.bases[behind_it];
    } else if (chunk + 1 < chunks_.size()) {
      place.next = firsts_[chunk + 1];
    }
    return place;
  }

  /// @return the record of the first range that begins after `address`; kNone if there is none.
  [[nodiscard]] uint32_t after(uint64_t address) const {
    const size_t chunk = chunk_of(address);
    if (chunk == chunks_.size()) return chunks_.empty() ? kNone : chunks_.front()->records[0];
    const size_t at = behind(*chunks_[chunk], address);
    if (at < chunks_[chunk]->count) return chunks_[chunk]->records[at];
    return chunk + 1 < chunks_.size() ? chunks_[chunk + 1]->records[0] : kNone;
  }

  /// Sets the record of the range that begins at `base`.
  void put(uint64_t base, uint32_t record) {
    size_t chunk = chunk_of(base);
    if (chunk == chunks_.size()) {
      if (chunks_.empty()) insert_chunk(0, base);
      chunk = 0;
    }
    Chunk* to = chunks_[chunk].get();
    size_t at = behind(*to, base);
    if (at > 0 && to->bases[at - 1] == base) {
      to->records[at - 1] = record;
      return;
    }
    if (to->count == kMost) {
      to = &split(chunk, at);
      at = behind(*to, base);
      chunk = chunk_of(base) == chunks_.size() ? 0 : chunk_of(base);
    }
    std::copy_backward(to->bases.begin() + at, to->bases.begin() + to->count,
                       to->bases.begin() + to->count + 1);
    std::copy_backward(to->records.begin() + at, to->records.begin() + to->count,
                       to->records.begin() + to->count + 1);
    to->bases[at] = base;
    to->records[at] = record;
    ++to->count;
    firsts_[chunk] = to->bases[0];
  }

  /// @pre a range begins at `base`.
  void erase(uint64_t base) {
    const size_t chunk = chunk_of(base);
    Chunk& from = *chunks_[chunk];
    const size_t at = behind(from, base);
    std::copy(from.bases.begin() + at, from.bases.begin() + from.count,
              from.bases.begin() + at - 1);
    std::copy(from.records.begin() + at, from.records.begin() + from.count,
              from.records.begin() + at - 1);
    if (--from.count == 0) {
      chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(chunk));
      firsts_.erase(firsts_.begin() + static_cast<ptrdiff_t>(chunk));
      return;
    }
    firsts_[chunk] = from.bases[0];
    if (chunk + 1 < chunks_.size()) merge(chunk);
  }

  void clear() {
    chunks_.clear();
    firsts_.clear();
  }

  [[nodiscard]] size_t bytes() const {
    return chunks_.size() * sizeof(Chunk) + chunks_.capacity() * sizeof(chunks_[0]) +
           firsts_.capacity() * sizeof(firsts_[0]);
  }

 private:
  static constexpr size_t kMost = 64;
  struct Chunk {
    std::array<uint64_t, kMost> bases;
    std::array<uint32_t, kMost> records;
    size_t count = 0;
  };

  /// @return the last chunk whose first base is at or before `address`; size() if there is none.
  [[nodiscard]] size_t chunk_of(uint64_t address) const {
    const size_t behind_it = at_or_below(firsts_.data(), firsts_.size(), address);
    return behind_it == 0 ? chunks_.size() : behind_it - 1;
  }
  /// @return the number of bases in the chunk that are at or before `address`.
  static size_t behind(const Chunk& chunk, uint64_t address) {
    return at_or_below(chunk.bases.data(), chunk.count, address);
  }
  /// @return how many of `count` ascending numbers are at most `limit`. Has no branch on the
  /// comparison, whose result a processor cannot predict.
  static size_t at_or_below(const uint64_t* numbers, size_t count, uint64_t limit) {
    const uint64_t* from = numbers;
    while (count > 1) {
      const size_t half = count / 2;
      from += half & (0 - static_cast<size_t>(from[half - 1] <= limit));
      count -= half;
    }
    return static_cast<size_t>(from - numbers) + (count == 1 && *from <= limit ? 1 : 0);
  }
  void insert_chunk(size_t at, uint64_t first) {
    chunks_.insert(chunks_.begin() + static_cast<ptrdiff_t>(at), std::make_unique<Chunk>());
    firsts_.insert(firsts_.begin() + static_cast<ptrdiff_t>(at), first);
  }
  /// Splits a full chunk. Bases often arrive in ascending order, so a chunk that grows at its end
  /// stays full.
  /// @return the half that position `at` belongs to.
  Chunk& split(size_t chunk, size_t at) {
    const size_t keep = at == kMost ? kMost - 1 : kMost / 2;
    insert_chunk(chunk + 1, chunks_[chunk]->bases[keep]);
    Chunk& low = *chunks_[chunk];
    Chunk& high = *chunks_[chunk + 1];
    std::copy(low.bases.begin() + keep, low.bases.end(), high.bases.begin());
    std::copy(low.records.begin() + keep, low.records.end(), high.records.begin());
    high.count = kMost - keep;
    low.count = keep;
    return at > keep ? high : low;
  }
  /// Merges the chunk with the next one if the result leaves room.
  void merge(size_t chunk) {
    Chunk& low = *chunks_[chunk];
    const Chunk& high = *chunks_[chunk + 1];
    if (low.count + high.count > kMost / 2) return;
    std::copy_n(high.bases.begin(), high.count, low.bases.begin() + low.count);
    std::copy_n(high.records.begin(), high.count, low.records.begin() + low.count);
    low.count += high.count;
    chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(chunk) + 1);
    firsts_.erase(firsts_.begin() + static_cast<ptrdiff_t>(chunk) + 1);
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<uint64_t> firsts_;  ///< first base of each chunk
};

}  // namespace convtrace::judge

#include "reader/event_decoder.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "format/file/layout.h"
#include "reader/columns/kind_rows.h"
#include "reader/columns/launch_rows.h"
#include "reader/columns/stats_rows.h"
#include "reader/columns/verified_payload.h"

namespace convtrace::reader {
namespace {

using namespace format;

std::array<uint32_t, 256> count_kinds(std::span<const uint8_t> kinds) {
  // Events of one kind are adjacent; with a single counter each increment would wait for the one
  // before.
  std::array<std::array<uint32_t, 256>, 4> counts{};
  for (size_t i = 0; i < kinds.size(); ++i) ++counts[i % 4][kinds[i]];
  for (size_t kind = 0; kind < 256; ++kind)
    counts[0][kind] += counts[1][kind] + counts[2][kind] + counts[3][kind];
  return counts[0];
}

constexpr size_t kBatch = EventDecoder::kBatch;

/// For each kind, a bit for each event of a batch that is of this kind.
using KindMasks = std::array<uint64_t, kKinds>;

#if defined(__SSE2__)
KindMasks masks_of(std::span<const uint8_t> kinds) {
  std::array<uint8_t, kBatch> padded;
  padded.fill(UINT8_MAX);
  std::copy(kinds.begin(), kinds.end(), padded.begin());
  constexpr size_t kVectorBytes = sizeof(__m128i);
  __m128i lanes[kBatch / kVectorBytes];
  std::memcpy(lanes, padded.data(), padded.size());
  KindMasks masks;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const __m128i wanted = _mm_set1_epi8(static_cast<char>(kind));
    masks[kind] = 0;
    for (size_t i = 0; i < std::size(lanes); ++i) {
      const int equal = _mm_movemask_epi8(_mm_cmpeq_epi8(lanes[i], wanted));
      masks[kind] |= uint64_t{static_cast<uint32_t>(equal)} << (i * kVectorBytes);
    }
  }
  return masks;
}
#else
KindMasks masks_of(std::span<const uint8_t> kinds) {
  KindMasks masks{};
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] < kKinds) masks[kinds[i]] |= uint64_t{1} << i;
  }
  return masks;
}
#endif

}  // namespace

/// The class that decodes the events of a kind.
template <typename Kind>
struct RowsOf : std::conditional_t<kIsTable<Kind>, TableRows<Kind>, KindRows<Kind>> {};
template <>
struct RowsOf<Launch> : LaunchRows {};
template <>
struct RowsOf<TensorStats> : StatsRows {};
template <>
struct RowsOf<Step> : StepRows {};

struct EventDecoder::Impl {
  const wire::Chunk* chunk = nullptr;
  std::span<const uint8_t> kinds;
  size_t position = 0;
  KindSet wanted = kAllKinds;
  uint64_t first_seq = 0, not_understood = 0;
  PackedColumn time, step, thread;
  EventHeader last;  ///< header of the last decoded event
  OfEachKind<RowsOf> rows;
  std::vector<uint64_t> newest;  ///< by launch: generation of the last Alloc before it

  // The batch that next() hands out. All events of a kind are decoded together, so that the processor
  // need not predict the kind of the next event.
  std::array<Event, kBatch> events;
  std::array<EventHeader, kBatch> headers;
  KindMasks places;
  uint64_t known = 0;  ///< a bit for each event that is understood

  [[nodiscard]] bool wants(size_t kind) const { return (wanted >> kind & 1) != 0; }
  [[nodiscard]] bool bind(const wire::Chunk& from, uint32_t item_count, size_t raw_bytes);
  template <typename Kind>
  [[nodiscard]] bool bind_rows(RowsOf<Kind>& of_kind, size_t count, TextBudget& budget);
  void find_newest(size_t launch_count);
  std::span<const Event> make_batch();
  void make_headers(size_t begin, size_t count);
  size_t drop_unwanted();
  size_t leave_out_not_understood(size_t count, size_t not_wanted);

  /// Decodes the events of a kind.
  template <typename Kind>
  void make(RowsOf<Kind>& of_kind) {
    for (uint64_t left = places[kKindOf<Kind>]; left != 0; left &= left - 1) {
      const auto place = static_cast<size_t>(std::countr_zero(left));
      if (of_kind.next(headers[place], events[place])) known |= uint64_t{1} << place;
    }
  }
};

bool EventDecoder::Impl::bind(const wire::Chunk& from, uint32_t item_count, size_t raw_bytes) {
  const size_t count = from.kind() != nullptr ? from.kind()->size() : 0;
  if (count != item_count) return false;
  if (count > 0) kinds = {from.kind()->data(), count};
  const std::array<uint32_t, 256> counts = count_kinds(kinds);
  chunk = &from;
  position = 0;
  first_seq = from.first_seq();
  last = {.seq = 0, .t_ns = from.first_t_ns(), .step = 0, .thread = 0};
  TextBudget budget(raw_bytes);
  const auto fits = [&]<typename Kind>(RowsOf<Kind>& of_kind) {
    return bind_rows(of_kind, counts[kKindOf<Kind>], budget);
  };
  // Launches are stored relative to the allocations before them.
  auto& allocs = std::get<RowsOf<Alloc>>(rows);
  return (!wants(kKindOf<Launch>) || allocs.bind(from.alloc(), counts[kKindOf<Alloc>])) &&
         time.bind(from.time(), count) && step.bind(from.step(), count, 4) &&
         thread.bind(from.thread(), count, 4) &&
         std::apply([&](auto&... of_kind) { return (fits(of_kind) && ...); }, rows);
}

/// Kinds with a table for each event, and steps, are verified even if they are not wanted.
template <typename Kind>
bool EventDecoder::Impl::bind_rows(RowsOf<Kind>& of_kind, size_t count, TextBudget& budget) {
  const auto* const stored = chunk->get_field<wire::kFieldOf<Kind>>();
  if constexpr (kIsTable<Kind>) {
    return of_kind.bind(stored, count, budget);
  } else if constexpr (std::is_same_v<Kind, Step>) {
    return of_kind.bind(stored, count);
  } else if constexpr (std::is_same_v<Kind, Launch>) {
    if (!wants(kKindOf<Launch>)) return true;
    find_newest(count);
    return of_kind.bind(stored, newest);
  } else {
    const bool done = std::is_same_v<Kind, Alloc> && wants(kKindOf<Launch>);
    return done || !wants(kKindOf<Kind>) || of_kind.bind(stored, count);
  }
}

void EventDecoder::Impl::find_newest(size_t launch_count) {
  newest.resize(launch_count + 1);  // the last entry is for events behind the last launch
  const auto& alloc_rows = std::get<RowsOf<Alloc>>(rows);
  size_t launches = 0, allocs = 0;
  for (const uint8_t kind : kinds) {
    newest[launches] = alloc_rows.after<8>(allocs);
    launches += kind == kKindOf<Launch> ? 1 : 0;
    allocs += kind == kKindOf<Alloc> ? 1 : 0;
  }
  newest.pop_back();
}

void EventDecoder::Impl::make_headers(size_t begin, size_t count) {
  static_assert(kBatch == PackedColumn::kBlock);
  PackedColumn::Block differences;
  time.empty() ? differences.fill(0) : time.read(differences);
  // Local copies, because the compiler must assume that writing a header changes the members.
  EventHeader header = last;
  uint32_t next_step = step.next_row(), next_thread = thread.next_row();
  for (size_t place = 0; place < count; ++place) {
    const size_t row = begin + place;
    if (row == next_step) {
      header.step += static_cast<uint32_t>(step.take());
      next_step = step.next_row();
    }
    if (row == next_thread) {
      header.thread ^= static_cast<uint32_t>(thread.take());
      next_thread = thread.next_row();
    }
    header.t_ns += wire::unzigzag(differences[place]);
    header.seq = first_seq + row;
    headers[place] = header;
  }
  last = header;
}

std::span<const Event> EventDecoder::Impl::make_batch() {
  const size_t begin = position, count = std::min(kBatch, kinds.size() - begin);
  position += count;
  make_headers(begin, count);
  places = masks_of(kinds.subspan(begin, count));
  known = 0;
  const size_t not_wanted = wanted == kAllKinds ? 0 : drop_unwanted();
  std::apply([this](auto&... of_kind) { (make(of_kind), ...); }, rows);
  return {events.data(), leave_out_not_understood(count, not_wanted)};
}

/// Removes the places of unwanted kinds from the batch. @return the number of removed places.
size_t EventDecoder::Impl::drop_unwanted() {
  size_t dropped = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (wants(kind)) continue;
    dropped += static_cast<size_t>(std::popcount(std::exchange(places[kind], 0)));
  }
  return dropped;
}

/// @param not_wanted  how many of the batch's first `count` events were not decoded.
/// @return the number of events that are left, at the front.
size_t EventDecoder::Impl::leave_out_not_understood(size_t count, size_t not_wanted) {
  if (known == UINT64_MAX) return count;
  size_t left = 0;
  for (uint64_t mask = known; mask != 0; mask &= mask - 1, ++left) {
    const auto place = static_cast<size_t>(std::countr_zero(mask));
    if (left != place) events[left] = events[place];
  }
  not_understood += count - left - not_wanted;
  return left;
}

EventDecoder::EventDecoder() : impl_(std::make_unique<Impl>()) {}
EventDecoder::~EventDecoder() = default;

Status EventDecoder::load(Bytes raw, uint32_t item_count, KindSet wanted) {
  clear();
  impl_->wanted = wanted;
  if (item_count > kMaxChunkEvents) return Status::make(StatusCode::kLimitExceeded, "chunk");
  const wire::Chunk* chunk = verified_chunk(raw);
  if (chunk == nullptr) return Status::make(StatusCode::kCorrupt, "chunk");
  if (!impl_->bind(*chunk, item_count, raw.size())) {
    clear();
    return Status::make(StatusCode::kCorrupt, "columns");
  }
  return kOkStatus;
}

void EventDecoder::clear() {
  impl_->chunk = nullptr;
  impl_->kinds = {};
  impl_->position = impl_->not_understood = 0;
}

std::vector<StepSums> EventDecoder::sums() const {
  std::vector<StepSums> sums;
  const bool known = impl_->chunk != nullptr && impl_->chunk->sums() != nullptr;
  if (known && !append_sums(*impl_->chunk->sums(), sums)) sums.clear();
  return sums;
}

uint64_t EventDecoder::first_seq() const { return impl_->first_seq; }

bool EventDecoder::resolved_by(const DefinitionCheck& check) const {
  if (impl_->chunk == nullptr) return false;
  const auto resolved = [&]<typename Kind>(const RowsOf<Kind>& of_kind) {
    return !(kIsTable<Kind> || impl_->wants(kKindOf<Kind>)) || of_kind.resolved_by(check);
  };
  return std::apply([&](const auto&... of_kind) { return (resolved(of_kind) && ...); },
                    impl_->rows);
}

std::span<const Event> EventDecoder::next() {
  std::span<const Event> batch;
  while (batch.empty() && impl_->position < impl_->kinds.size()) batch = impl_->make_batch();
  return batch;
}

uint64_t EventDecoder::not_understood() const { return impl_->not_understood; }

}  // namespace convtrace::reader

#include "reader/event_decoder.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "format/file/layout.h"
#include "reader/columns/launch_rows.h"
#include "reader/columns/memory_rows.h"
#include "reader/columns/op_rows.h"
#include "reader/columns/rare_rows.h"
#include "reader/columns/scope_rows.h"
#include "reader/columns/stats_rows.h"
#include "reader/columns/sums_rows.h"
#include "reader/columns/sync_rows.h"
#include "reader/columns/verified_chunk.h"

namespace convtrace::reader {
namespace {

using namespace format;

template <typename Table>
size_t rows_of(const flatbuffers::Vector<flatbuffers::Offset<Table>>* rows) {
  return rows != nullptr ? rows->size() : 0;
}

std::array<uint32_t, 256> count_kinds(std::span<const uint8_t> kinds) {
  // Equal kinds follow each other; to count them in one place each would wait for the one before.
  std::array<std::array<uint32_t, 256>, 4> counts{};
  for (size_t i = 0; i < kinds.size(); ++i) ++counts[i % 4][kinds[i]];
  for (size_t kind = 0; kind < 256; ++kind) {
    counts[0][kind] += counts[1][kind] + counts[2][kind] + counts[3][kind];
  }
  return counts[0];
}

constexpr size_t kKinds = std::variant_size_v<Event>;
constexpr size_t kBatch = EventDecoder::kBatch;

/// For each kind which events of a batch are of it, a bit for each.
using KindMasks = std::array<uint64_t, kKinds>;

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

}  // namespace

struct EventDecoder::Impl {
  const wire::Chunk* chunk = nullptr;
  std::span<const uint8_t> kinds;
  size_t position = 0;
  KindSet wanted = kAllKinds;
  uint64_t first_seq = 0, not_understood = 0;
  PackedColumn time, step, thread;
  EventHeader last;  ///< of the last event given out
  LaunchRows launch;
  StatsRows stats;
  MemoryRows<Alloc> alloc;
  MemoryRows<Free> free;
  CopyRows copy;
  ScopeRows scope;
  SyncRows sync;
  OpRows op;
  PackedColumn step_index;
  size_t step_row = 0;
  uint32_t last_index = 0;
  size_t finding_row = 0, diagnostic_row = 0, loss_row = 0, cost_row = 0, fact_row = 0;
  std::vector<uint64_t> newest;  ///< by launch: generation of the last Alloc before it

  // The batch that is given out: the events of a kind are made together, which spares the processor
  // to guess what kind comes next.
  std::array<Event, kBatch> events;
  std::array<EventHeader, kBatch> headers;
  KindMasks places;
  uint64_t known = 0;  ///< a bit for each event that is understood

  [[nodiscard]] bool wants(size_t kind) const { return (wanted >> kind & 1) != 0; }
  [[nodiscard]] bool bind(const wire::Chunk& from, uint32_t item_count, size_t raw_bytes);
  [[nodiscard]] bool bind_launches(const wire::Chunk& from, size_t row_count);
  void find_newest(size_t launch_count);
  std::span<const Event> make_batch();
  void make_headers(size_t begin, size_t count);
  size_t drop_unwanted();
  size_t leave_out_not_understood(size_t count, size_t not_wanted);

  /// Makes the events of a kind by `make(header, event)`, which returns whether all is understood.
  template <typename Make>
  void make_kind(size_t kind, const Make& make) {
    for (uint64_t left = places[kind]; left != 0; left &= left - 1) {
      const auto place = static_cast<size_t>(std::countr_zero(left));
      if (make(headers[place], events[place])) known |= uint64_t{1} << place;
    }
  }
  template <typename Rows>
  void make_rows(size_t kind, Rows& rows) {
    make_kind(kind,
              [&](const EventHeader& header, Event& event) { return rows.next(header, event); });
  }
  template <typename Kind, typename Table>
  void make_tables(size_t kind, const flatbuffers::Vector<flatbuffers::Offset<Table>>* tables,
                   size_t& row) {
    make_kind(kind, [&](const EventHeader& header, Event& event) {
      Kind& made = event.emplace<Kind>();
      const bool understood = read(*tables->Get(static_cast<flatbuffers::uoffset_t>(row++)), made);
      made.header = header;
      return understood;
    });
  }
};

bool EventDecoder::Impl::bind(const wire::Chunk& from, uint32_t item_count, size_t raw_bytes) {
  const size_t count = from.kind() != nullptr ? from.kind()->size() : 0;
  if (count != item_count) return false;
  if (count > 0) kinds = {from.kind()->data(), count};
  const std::array<uint32_t, 256> rows = count_kinds(kinds);
  chunk = &from;
  position = step_row = last_index = 0;
  finding_row = diagnostic_row = loss_row = cost_row = fact_row = 0;
  first_seq = from.first_seq();
  last = {.seq = 0, .t_ns = from.first_t_ns(), .step = 0, .thread = 0};
  const auto fits = [this, &rows](size_t kind, auto& table, const auto* columns) {
    return !wants(kind) || table.bind(columns, rows[kind]);
  };
  // Launches are stored in terms of the allocations before them.
  const bool allocs_fit = (!wants(0) && !wants(2)) || alloc.bind(from.alloc(), rows[2]);
  return allocs_fit && bind_launches(from, rows[0]) && time.bind(from.time(), count) &&
         step.bind(from.step(), count, 4) && thread.bind(from.thread(), count, 4) &&
         fits(1, stats, from.stats()) && fits(3, free, from.free()) && fits(4, copy, from.copy()) &&
         fits(5, scope, from.scope()) && step_index.bind(from.step_index(), rows[6], 4) &&
         rows_of(from.finding()) == rows[7] && rows_of(from.diagnostic()) == rows[8] &&
         rows_of(from.loss()) == rows[9] && rows_of(from.cost()) == rows[10] &&
         fits(11, sync, from.sync()) && fits(12, op, from.op()) &&
         rows_of(from.fact()) == rows[13] && rare_texts_fit(from, raw_bytes);
}

bool EventDecoder::Impl::bind_launches(const wire::Chunk& from, size_t row_count) {
  if (!wants(0)) return true;
  find_newest(row_count);
  return launch.bind(from.launch(), newest);
}

void EventDecoder::Impl::find_newest(size_t launch_count) {
  newest.resize(launch_count + 1);  // the last one is written for events behind the last launch
  size_t launches = 0, allocs = 0;
  for (const uint8_t kind : kinds) {
    newest[launches] = alloc.generation_after(allocs);
    launches += kind == 0 ? 1 : 0;
    allocs += kind == 2 ? 1 : 0;
  }
  newest.pop_back();
}

void EventDecoder::Impl::make_headers(size_t begin, size_t count) {
  static_assert(kBatch == PackedColumn::kBlock);
  PackedColumn::Block differences;
  time.empty() ? differences.fill(0) : time.read(differences);
  // In locals: for all the compiler knows, writing a header could change the members.
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
  make_rows(0, launch);
  make_rows(1, stats);
  make_rows(2, alloc);
  make_rows(3, free);
  make_rows(4, copy);
  make_rows(5, scope);
  make_kind(6, [this](const EventHeader& header, Event& event) {
    last_index += static_cast<uint32_t>(step_index.at(step_row++));
    event.emplace<Step>(Step{.header = header, .index = last_index});
    return true;
  });
  make_tables<Finding>(7, chunk->finding(), finding_row);
  make_tables<Diagnostic>(8, chunk->diagnostic(), diagnostic_row);
  make_tables<Loss>(9, chunk->loss(), loss_row);
  make_tables<Cost>(10, chunk->cost(), cost_row);
  make_rows(11, sync);
  make_rows(12, op);
  make_tables<Fact>(13, chunk->fact(), fact_row);
  return {events.data(), leave_out_not_understood(count, not_wanted)};
}

/// @return how many places of the batch are of kinds that are not to be made.
size_t EventDecoder::Impl::drop_unwanted() {
  size_t dropped = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (wants(kind)) continue;
    dropped += static_cast<size_t>(std::popcount(std::exchange(places[kind], 0)));
  }
  return dropped;
}

/// @param not_wanted  how many of the batch's first `count` events were not made.
/// @return how many are left, in front.
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
  const Impl& impl = *impl_;
  const auto resolved = [&](size_t kind, const auto& rows) {
    return !impl.wants(kind) || rows.resolved_by(check);
  };
  return impl.chunk != nullptr && resolved(0, impl.launch) && resolved(1, impl.stats) &&
         resolved(2, impl.alloc) && resolved(3, impl.free) && resolved(5, impl.scope) &&
         resolved(12, impl.op) && rare_resolved_by(check, *impl.chunk);
}

std::span<const Event> EventDecoder::next() {
  std::span<const Event> batch;
  while (batch.empty() && impl_->position < impl_->kinds.size()) batch = impl_->make_batch();
  return batch;
}

uint64_t EventDecoder::not_understood() const { return impl_->not_understood; }

}  // namespace convtrace::reader

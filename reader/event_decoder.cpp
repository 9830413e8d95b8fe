#include "reader/event_decoder.h"

#include <array>

#include "format/layout.h"
#include "reader/columns/launch_rows.h"
#include "reader/columns/memory_rows.h"
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

}  // namespace

struct EventDecoder::Impl {
  const wire::Chunk* chunk = nullptr;
  std::span<const uint8_t> kinds;
  size_t position = 0;
  uint64_t first_seq = 0;
  std::vector<uint64_t> time;  ///< by event
  PackedColumn step, thread;
  uint32_t last_step = 0, last_thread = 0;
  LaunchRows launch;
  StatsRows stats;
  MemoryRows<Alloc> alloc;
  MemoryRows<Free> free;
  CopyRows copy;
  ScopeRows scope;
  SyncRows sync;
  PackedColumn step_index;
  size_t step_row = 0;
  uint32_t last_index = 0;
  size_t finding_row = 0, diagnostic_row = 0, loss_row = 0, cost_row = 0;
  std::vector<uint64_t> newest;  ///< by launch: generation of the last Alloc before it

  void find_newest(size_t launch_count);
  bool bind(const wire::Chunk& from, uint32_t item_count, size_t raw_bytes);
  bool next(Event& event);
  template <typename Kind, typename Table>
  bool next_table(EventHeader header, const flatbuffers::Vector<flatbuffers::Offset<Table>>& tables,
                  size_t& row, Event& event) {
    Kind& e = event.emplace<Kind>();
    const bool known = read(*tables.Get(static_cast<flatbuffers::uoffset_t>(row++)), e);
    e.header = header;
    return known;
  }
  bool next_step(EventHeader header, Event& event);
};

bool EventDecoder::Impl::bind(const wire::Chunk& from, uint32_t item_count, size_t raw_bytes) {
  const size_t count = from.kind() != nullptr ? from.kind()->size() : 0;
  if (count != item_count) return false;
  if (count > 0) kinds = {from.kind()->data(), count};
  const std::array<uint32_t, 256> rows = count_kinds(kinds);
  chunk = &from;
  position = step_row = last_index = 0;
  finding_row = diagnostic_row = loss_row = cost_row = 0;
  first_seq = from.first_seq();
  last_step = last_thread = 0;
  time.resize(count);
  uint64_t now = from.first_t_ns();
  const StoredColumn differences[] = {{from.time()}};
  const bool fits = each_row(differences, count, [&, row = size_t{0}](const auto& v) mutable {
    time[row++] = now += wire::unzigzag(v[0]);
  });
  if (!fits) return false;
  if (!alloc.bind(from.alloc(), rows[2])) return false;
  find_newest(rows[0]);
  return step.bind(from.step(), count, 4) && thread.bind(from.thread(), count, 4) &&
         launch.bind(from.launch(), newest) && stats.bind(from.stats(), rows[1]) &&
         free.bind(from.free(), rows[3]) && copy.bind(from.copy(), rows[4]) &&
         scope.bind(from.scope(), rows[5]) && step_index.bind(from.step_index(), rows[6], 4) &&
         rows_of(from.finding()) == rows[7] && rows_of(from.diagnostic()) == rows[8] &&
         rows_of(from.loss()) == rows[9] && rows_of(from.cost()) == rows[10] &&
         sync.bind(from.sync(), rows[11]) && rare_texts_fit(from, raw_bytes);
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

bool EventDecoder::Impl::next_step(EventHeader header, Event& event) {
  last_index += static_cast<uint32_t>(step_index.at(step_row++));
  event.emplace<Step>(Step{.header = header, .index = last_index});
  return true;
}

/// @return whether the event is understood; `event` is set only then. @pre there is one
bool EventDecoder::Impl::next(Event& event) {
  const size_t row = position++;
  if (row == step.next_row()) last_step += static_cast<uint32_t>(step.take());
  if (row == thread.next_row()) last_thread ^= static_cast<uint32_t>(thread.take());
  const EventHeader header{
      .seq = first_seq + row, .t_ns = time[row], .step = last_step, .thread = last_thread};
  switch (kinds[row]) {
    case 0:
      return launch.next(header, event);
    case 1:
      return stats.next(header, event);
    case 2:
      return alloc.next(header, event);
    case 3:
      return free.next(header, event);
    case 4:
      return copy.next(header, event);
    case 5:
      return scope.next(header, event);
    case 6:
      return next_step(header, event);
    case 7:
      return next_table<Finding>(header, *chunk->finding(), finding_row, event);
    case 8:
      return next_table<Diagnostic>(header, *chunk->diagnostic(), diagnostic_row, event);
    case 9:
      return next_table<Loss>(header, *chunk->loss(), loss_row, event);
    case 10:
      return next_table<Cost>(header, *chunk->cost(), cost_row, event);
    case 11:
      return sync.next(header, event);
    default:
      return false;
  }
}

EventDecoder::EventDecoder() : impl_(std::make_unique<Impl>()) {}
EventDecoder::~EventDecoder() = default;

Status EventDecoder::load(Bytes raw, uint32_t item_count) {
  clear();
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
  impl_->position = 0;
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
  return impl.chunk != nullptr && impl.launch.resolved_by(check) && impl.stats.resolved_by(check) &&
         impl.alloc.resolved_by(check) && impl.free.resolved_by(check) &&
         impl.scope.resolved_by(check) && findings_resolved_by(check, *impl.chunk);
}

EventDecoder::Outcome EventDecoder::next(Event& event) {
  Impl& impl = *impl_;
  if (impl.position == impl.kinds.size()) return Outcome::kEnd;
  return impl.next(event) ? Outcome::kEvent : Outcome::kNotUnderstood;
}

}  // namespace convtrace::reader

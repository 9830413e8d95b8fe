#include "reader/event_decoder.h"

#include <array>

#include "format/layout.h"
#include "reader/columns/launch_rows.h"
#include "reader/columns/memory_rows.h"
#include "reader/columns/rare_rows.h"
#include "reader/columns/scope_rows.h"
#include "reader/columns/stats_rows.h"
#include "reader/columns/sums_rows.h"
#include "reader/columns/verified_chunk.h"

namespace convtrace::reader {
namespace {

using namespace format;

template <typename Table>
size_t rows_of(const flatbuffers::Vector<flatbuffers::Offset<Table>>* rows) {
  return rows != nullptr ? rows->size() : 0;
}

/// @return `event` as a kind, without making a new one where it is of that kind already.
template <typename Kind>
Kind& as(Event& event) {
  Kind* same = std::get_if<Kind>(&event);
  return same != nullptr ? *same : event.emplace<Kind>();
}

}  // namespace

struct EventDecoder::Impl {
  const wire::Chunk* chunk = nullptr;
  std::span<const uint8_t> kinds;
  size_t position = 0;
  EventHeader last;  ///< of the event before, decoded or not

  PackedColumn time, step, thread;
  LaunchRows launch;
  StatsRows stats;
  MemoryRows alloc, free;
  CopyRows copy;
  ScopeRows scope;
  PackedColumn step_index;
  size_t step_row = 0;
  uint32_t last_index = 0;
  size_t finding_row = 0, diagnostic_row = 0, loss_row = 0, cost_row = 0;

  bool bind(const wire::Chunk& from, uint32_t item_count);
  void next_header();
  bool next_event(uint8_t kind, Event& event);
  template <typename Kind, typename Rows, typename... More>
  bool next_row(Rows& rows, Event& event, More... more) {
    Kind& e = as<Kind>(event);
    const bool known = rows.next(e, more...);
    e.header = last;
    return known;
  }
  template <typename Kind, typename Table>
  bool next_table(const flatbuffers::Vector<flatbuffers::Offset<Table>>& tables, size_t& row,
                  Event& event) {
    Kind& e = as<Kind>(event);
    const bool known = read(*tables.Get(static_cast<flatbuffers::uoffset_t>(row++)), e);
    e.header = last;
    return known;
  }
  bool next_step(Event& event);
};

bool EventDecoder::Impl::bind(const wire::Chunk& from, uint32_t item_count) {
  const size_t count = from.kind() != nullptr ? from.kind()->size() : 0;
  if (count != item_count) return false;
  if (count > 0) kinds = {from.kind()->data(), count};
  std::array<size_t, 256> rows{};
  for (const uint8_t kind : kinds) ++rows[kind];
  chunk = &from;
  position = step_row = last_index = 0;
  finding_row = diagnostic_row = loss_row = cost_row = 0;
  last = {.seq = from.first_seq() - 1, .t_ns = from.first_t_ns()};
  return time.bind(from.time(), count) && step.bind(from.step(), count, 4) &&
         thread.bind(from.thread(), count, 4) && launch.bind(from.launch(), rows[0]) &&
         stats.bind(from.stats(), rows[1]) && alloc.bind(from.alloc(), rows[2]) &&
         free.bind(from.free(), rows[3]) && copy.bind(from.copy(), rows[4]) &&
         scope.bind(from.scope(), rows[5]) && step_index.bind(from.step_index(), rows[6], 4) &&
         rows_of(from.finding()) == rows[7] && rows_of(from.diagnostic()) == rows[8] &&
         rows_of(from.loss()) == rows[9] && rows_of(from.cost()) == rows[10] &&
         rare_texts_fit(from);
}

void EventDecoder::Impl::next_header() {
  ++last.seq;
  last.t_ns += wire::unzigzag(time.at(position));
  last.step += static_cast<uint32_t>(step.at(position));
  last.thread ^= static_cast<uint32_t>(thread.at(position));
  ++position;
}

bool EventDecoder::Impl::next_step(Event& event) {
  last_index += static_cast<uint32_t>(step_index.at(step_row++));
  as<Step>(event) = {.header = last, .index = last_index};
  return true;
}

/// @return whether the event is understood; `event` is set only then.
bool EventDecoder::Impl::next_event(uint8_t kind, Event& event) {
  switch (kind) {
    case 0:
      return next_row<Launch>(launch, event, alloc.last_generation());
    case 1:
      return next_row<TensorStats>(stats, event);
    case 2:
      return next_row<Alloc>(alloc, event);
    case 3:
      return next_row<Free>(free, event);
    case 4:
      return next_row<Copy>(copy, event);
    case 5:
      return next_row<Scope>(scope, event);
    case 6:
      return next_step(event);
    case 7:
      return next_table<Finding>(*chunk->finding(), finding_row, event);
    case 8:
      return next_table<Diagnostic>(*chunk->diagnostic(), diagnostic_row, event);
    case 9:
      return next_table<Loss>(*chunk->loss(), loss_row, event);
    case 10:
      return next_table<Cost>(*chunk->cost(), cost_row, event);
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
  if (!impl_->bind(*chunk, item_count)) {
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

EventDecoder::Outcome EventDecoder::next(Event& event) {
  Impl& impl = *impl_;
  if (impl.position == impl.kinds.size()) return Outcome::kEnd;
  const uint8_t kind = impl.kinds[impl.position];
  impl.next_header();
  return impl.next_event(kind, event) ? Outcome::kEvent : Outcome::kNotUnderstood;
}

}  // namespace convtrace::reader

#include "format/file/event_encoder.h"

#include <algorithm>
#include <type_traits>

#include "format/file/columns/launch_columns.h"
#include "format/file/columns/memory_columns.h"
#include "format/file/columns/op_columns.h"
#include "format/file/columns/rare_tables.h"
#include "format/file/columns/scope_columns.h"
#include "format/file/columns/stats_columns.h"
#include "format/file/columns/sums_columns.h"
#include "format/file/columns/sync_columns.h"
#include "format/file/layout.h"
#include "format/schema/chunk_generated.h"

namespace convtrace::format {
namespace {

/// How often the size of the columns is added up anew: it takes longer than an event.
constexpr uint32_t kMeasureEvery = 256;

// Bytes of the parts whose length the event itself decides.
size_t variable_bytes(const Launch& e) { return e.operands.size_bytes(); }
size_t variable_bytes(const TensorStats& e) {
  return e.shape.size_bytes() + e.range_hashes.size_bytes() + e.samples.size() + e.leading.size() +
         e.pad_rows.size_bytes();
}
size_t variable_bytes(const Finding& e) { return e.message.size(); }
size_t variable_bytes(const Diagnostic& e) { return e.site.size() + e.message.size(); }
size_t variable_bytes(const Fact& e) { return e.value.size(); }
size_t variable_bytes(const auto&) { return 0; }

bool within_limits(const Launch& e) { return e.operands.size() <= kMaxOperands; }
bool within_limits(const TensorStats& e) {
  return e.shape.size() <= kMaxDims && e.range_hashes.size() <= kMaxRanges &&
         e.pad_rows.size() <= kMaxPadRows && variable_bytes(e) <= kMaxEventBytes;
}
bool within_limits(const auto&) { return true; }  // texts are cut

bool is_urgent(const Finding& e) { return e.level == Level::kError; }
bool is_urgent(const auto&) { return false; }

template <typename Kind>
constexpr bool kIsNote = std::is_same_v<Kind, Finding> || std::is_same_v<Kind, Loss>;

}  // namespace

struct EventEncoder::Columns {
  flatbuffers::FlatBufferBuilder builder{kChunkCloseBytes};
  ChunkSummary summary;
  EventHeader first, last;  ///< of the chunk's events
  size_t measured_bytes = 0;
  size_t unmeasured_bytes = 0;  ///< variable parts added since
  std::vector<uint8_t> kind;
  PackedColumn time, step, thread;
  LaunchColumns launch;
  StatsColumns stats;
  MemoryColumns alloc, free;
  uint64_t newest_generation = 0;  ///< of the last Alloc
  CopyColumns copy;
  ScopeColumns scope;
  SyncColumns sync;
  OpColumns op;
  PackedColumn step_index;
  size_t step_count = 0;
  uint32_t last_index = 0;
  RareTables rare;
  StepSummer summer;

  explicit Columns(const Definitions& definitions) : summer(definitions) {}
  void put_header(const EventHeader& header, size_t event_kind);
  void put_step(size_t row, uint32_t now);
  [[nodiscard]] size_t packed_bytes() const;
  [[nodiscard]] wire::ChunkT chunk();
  void clear();

  void put(const Launch& e) { summer.add(e, launch.put(e, newest_generation)); }
  void put(const TensorStats& e) {
    stats.put(e);
    summer.add(e);
  }
  void put(const Alloc& e) {
    alloc.put(e);
    newest_generation = e.generation;
  }
  void put(const Free& e) { free.put(e); }
  void put(const Copy& e) { copy.put(e); }
  void put(const Scope& e) { scope.put(e); }
  void put(const Sync& e) { sync.put(e); }
  void put(const Op& e) { op.put(e); }
  void put(const Step& e) {
    step_index.put(step_count++, e.index - last_index);
    last_index = e.index;
  }
  void put(const Fact& e) {
    rare.put(e);
    summer.add(e);
  }
  void put(const auto& rare_event) { rare.put(rare_event); }
};

void EventEncoder::Columns::put_header(const EventHeader& header, size_t event_kind) {
  const size_t row = kind.size();
  if (row == 0) {
    first = header;
    last = EventHeader{.t_ns = header.t_ns};
  }
  kind.push_back(static_cast<uint8_t>(event_kind));
  time.put(row, wire::zigzag(header.t_ns - last.t_ns));
  summary.time_begin_ns = row == 0 ? header.t_ns : std::min(summary.time_begin_ns, header.t_ns);
  summary.time_end_ns = std::max(summary.time_end_ns, header.t_ns);
  if (header.thread != last.thread) thread.put(row, header.thread ^ last.thread);
  if (header.step != last.step || row == 0) put_step(row, header.step);
  last = header;
  ++summary.event_count;
}

void EventEncoder::Columns::put_step(size_t row, uint32_t now) {
  step.put(row, now - last.step);
  if (now == kNoStep) return;
  const bool known = summary.step_begin != kNoStep;
  summary.step_begin = std::min(summary.step_begin, now);
  summary.step_end = known ? std::max(summary.step_end, now) : now;
}

size_t EventEncoder::Columns::packed_bytes() const {
  const size_t rows = kind.size();
  return rows + time.packed_bytes(rows) + step.packed_bytes(rows) + thread.packed_bytes(rows) +
         launch.packed_bytes() + stats.packed_bytes() + alloc.packed_bytes() + free.packed_bytes() +
         copy.packed_bytes() + scope.packed_bytes() + sync.packed_bytes() + op.packed_bytes() +
         step_index.packed_bytes(step_count) + rare.packed_bytes();
}

wire::ChunkT EventEncoder::Columns::chunk() {
  wire::ChunkT to;
  to.first_t_ns = first.t_ns;
  to.kind = kind;
  to.time = time.pack(kind.size());
  to.step = step.pack(kind.size());
  to.thread = thread.pack(kind.size());
  to.launch = launch.pack();
  to.stats = stats.pack();
  to.alloc = alloc.pack();
  to.free = free.pack();
  to.copy = copy.pack();
  to.scope = scope.pack();
  to.sync = sync.pack();
  to.op = op.pack();
  to.step_index = step_index.pack(step_count);
  rare.move_to(to);
  return to;
}

void EventEncoder::Columns::clear() {
  summary = {};
  measured_bytes = unmeasured_bytes = 0;
  kind.clear();
  time.clear();
  step.clear();
  thread.clear();
  launch.clear();
  stats.clear();
  alloc.clear();
  free.clear();
  copy.clear();
  scope.clear();
  sync.clear();
  op.clear();
  step_index.clear();
  newest_generation = step_count = last_index = 0;
  rare.clear();
  summer.clear();
}

EventEncoder::EventEncoder(const Definitions& definitions)
    : columns_(std::make_unique<Columns>(definitions)) {}
EventEncoder::~EventEncoder() = default;

Status EventEncoder::add(const Event& event) {
  Columns& to = *columns_;
  const auto add_kind = [&](const auto& e) {
    if (!within_limits(e)) return false;
    to.put_header(e.header, event.index());
    to.put(e);
    to.summary.urgent |= is_urgent(e);
    using Kind = std::remove_cvref_t<decltype(e)>;
    to.summary.notes |= kIsNote<Kind>;
    to.summary.facts |= std::is_same_v<Kind, Fact>;
    to.unmeasured_bytes += variable_bytes(e);
    return true;
  };
  if (!visit_event(add_kind, event)) return Status::make(StatusCode::kLimitExceeded, "event");
  if (to.unmeasured_bytes >= kChunkCloseBytes / 16 || to.summary.event_count % kMeasureEvery == 0) {
    to.measured_bytes = to.packed_bytes();
    to.unmeasured_bytes = 0;
  }
  return kOkStatus;
}

bool EventEncoder::full() const {
  return columns_->measured_bytes >= kChunkCloseBytes ||
         columns_->summary.event_count >= kMaxChunkEvents ||
         columns_->launch.operand_count() > kMaxChunkOperands - kMaxOperands;
}

const ChunkSummary& EventEncoder::summary() const { return columns_->summary; }

Bytes EventEncoder::finish(uint64_t first_seq) {
  flatbuffers::FlatBufferBuilder& builder = columns_->builder;
  wire::ChunkT chunk = columns_->chunk();
  chunk.first_seq = first_seq;
  chunk.sums = pack(sums());
  builder.Clear();
  wire::FinishChunkBuffer(builder, wire::Chunk::Pack(builder, &chunk));
  return std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
}

const std::vector<StepSums>& EventEncoder::sums() { return columns_->summer.sums(); }

void EventEncoder::clear() { columns_->clear(); }

}  // namespace convtrace::format

#include "format/event_encoder.h"

#include <algorithm>
#include <string>

#include "format/definitions.h"
#include "format/layout.h"
#include "format/schema/chunk_generated.h"
#include "format/schema/conventions.h"

namespace convtrace::format {
namespace {

constexpr size_t kOperandBytes = 2 + 2 + 1 + 8 + 8 + 8;
/// What a FlatBuffers table of a rare kind takes beside its texts; an estimate for the close rule.
constexpr size_t kRareTableBytes = 160;

std::string cut(std::string_view text) { return std::string(text.substr(0, kMaxStringBytes)); }

/// Bytes of the parts whose length the event itself decides.
struct VariableBytes {
  size_t operator()(const Launch& e) const { return e.operands.size() * kOperandBytes; }
  size_t operator()(const TensorStats& e) const {
    return e.shape.size_bytes() + e.range_hashes.size_bytes() + e.samples.size() + e.leading.size();
  }
  template <typename Fixed>
  size_t operator()(const Fixed&) const {
    return 0;
  }
};

bool within_limits(const Event& event) {
  if (const auto* stats = std::get_if<TensorStats>(&event)) {
    if (stats->shape.size() > kMaxDims || stats->range_hashes.size() > kMaxRanges) return false;
  }
  return std::visit(VariableBytes{}, event) <= kMaxEventBytes;
}

bool is_urgent(const Event& event) {
  const auto* finding = std::get_if<Finding>(&event);
  return finding != nullptr && finding->level == Level::kError;
}

template <typename Columns>
Columns& made(std::unique_ptr<Columns>& columns) {
  if (!columns) columns = std::make_unique<Columns>();
  return *columns;
}

}  // namespace

/// The generated object form of a chunk: one std::vector per column.
struct EventEncoder::Columns {
  wire::ChunkT chunk;
  flatbuffers::FlatBufferBuilder builder{kChunkCloseBytes};
  ChunkSummary summary;
  size_t raw_bytes = 0;
  uint64_t last_t_ns = 0;

  template <typename T, typename Value>
  void put(std::vector<T>& column, Value value) {
    column.push_back(static_cast<T>(value));
    raw_bytes += sizeof(T);
  }

  template <typename T, typename Value>
  void put_all(std::vector<T>& column, std::span<const Value> values) {
    static_assert(sizeof(T) == sizeof(Value));
    const T* first = reinterpret_cast<const T*>(values.data());
    column.insert(column.end(), first, first + values.size());
    raw_bytes += values.size_bytes();
  }

  template <typename Table>
  void put_table(std::vector<std::unique_ptr<Table>>& rows, std::unique_ptr<Table> row,
                 size_t text_bytes) {
    rows.push_back(std::move(row));
    raw_bytes += kRareTableBytes + text_bytes;
  }

  template <typename Table>
  void put_place(Table& table, const Place& place) {
    put(table.scope, place.scope.value);
    put(table.call, place.call);
    put(table.phase, place.phase);
  }

  void put_common(const Event& event);
  void put_values(const Stats& stats);
  void put_memory(wire::MemoryColumnsT& table, const auto& e);

  void operator()(const Launch& e);
  void operator()(const TensorStats& e);
  void operator()(const Alloc& e) { put_memory(made(chunk.alloc), e); }
  void operator()(const Free& e) { put_memory(made(chunk.free), e); }
  void operator()(const Copy& e);
  void operator()(const Scope& e);
  void operator()(const Step& e) { put(made(chunk.step_mark).index, e.index); }
  void operator()(const Finding& e);
  void operator()(const Diagnostic& e);
  void operator()(const Loss& e);
  void operator()(const Cost& e);
};

void EventEncoder::Columns::put_common(const Event& event) {
  const EventHeader& header = header_of(event);
  put(chunk.kind, event.index());
  put(chunk.t_delta_ns, header.t_ns - last_t_ns);
  put(chunk.step, header.step);
  put(chunk.thread, header.thread);
  last_t_ns = header.t_ns;

  const bool first = summary.event_count == 0;
  summary.time_begin_ns = first ? header.t_ns : std::min(summary.time_begin_ns, header.t_ns);
  summary.time_end_ns = std::max(summary.time_end_ns, header.t_ns);
  if (header.step != kNoStep) {
    const bool known = summary.step_begin != kNoStep;
    summary.step_begin = std::min(summary.step_begin, header.step);
    summary.step_end = known ? std::max(summary.step_end, header.step) : header.step;
  }
  summary.urgent |= is_urgent(event);
  ++summary.event_count;
}

void EventEncoder::Columns::operator()(const Launch& e) {
  wire::LaunchColumnsT& to = made(chunk.launch);
  put_place(to, e.place);
  put(to.kernel, e.kernel.value);
  put(to.grid_x, e.grid[0]);
  put(to.grid_y, e.grid[1]);
  put(to.grid_z, e.grid[2]);
  put(to.block_x, e.block[0]);
  put(to.block_y, e.block[1]);
  put(to.block_z, e.block[2]);
  put(to.shared_bytes, e.shared_bytes);
  put(to.stream, e.stream);
  put(to.device, e.device);
  put(to.sampled, e.sampled);
  put(to.operand_count, e.operands.size());
  for (const Operand& operand : e.operands) {
    put(to.operand_param, operand.param);
    put(to.operand_word, operand.word);
    put(to.operand_confidence, operand.confidence);
    put(to.operand_address, operand.address);
    put(to.operand_generation, operand.generation);
    put(to.operand_offset, operand.offset);
  }
}

void EventEncoder::Columns::operator()(const TensorStats& e) {
  wire::StatsColumnsT& to = made(chunk.stats);
  put_place(to, e.place);
  put(to.slot, e.slot.value);
  put(to.op, e.op.value);
  put(to.kernel, e.kernel.value);
  put(to.device_type, e.device.type);
  put(to.device_index, e.device.index);
  put(to.dtype, e.dtype);
  put(to.extent, e.extent);
  put(to.capture, e.capture);
  put(to.storage, e.value.storage);
  put(to.storage_offset, e.value.offset);
  put(to.generation, e.value.generation);
  put(to.version, e.value.version);
  put(to.address, e.address);
  put(to.bytes, e.bytes);
  put(to.rank, e.has_shape ? e.shape.size() : wire::kRankUnknown);
  if (e.has_shape) put_all(to.shape, e.shape);
  put(to.count, e.stats.count);
  put(to.hash, e.stats.hash);
  put(to.variant, e.variant);
  put(to.range_count, e.range_hashes.size());
  put_all(to.range_hashes, e.range_hashes);
  put(to.sample_bytes, e.samples.size());
  put_all(to.samples, e.samples);
  put(to.leading_bytes, e.leading.size());
  put_all(to.leading, e.leading);
  if (e.capture != Capture::kHash) put_values(e.stats);
}

void EventEncoder::Columns::put_values(const Stats& stats) {
  wire::StatsValuesT& to = made(chunk.stats->values);
  put(to.finite, stats.finite);
  put(to.nan, stats.nan);
  put(to.pos_inf, stats.pos_inf);
  put(to.neg_inf, stats.neg_inf);
  put(to.pos_zero, stats.pos_zero);
  put(to.neg_zero, stats.neg_zero);
  put(to.positive, stats.positive);
  put(to.negative, stats.negative);
  put(to.subnormal, stats.subnormal);
  put(to.saturated, stats.saturated);
  put(to.min, stats.min.bits);
  put(to.max, stats.max.bits);
  put(to.amax, stats.amax.bits);
  put(to.amin_nonzero, stats.amin_nonzero.bits);
  put(to.sum_lo, stats.sum.lo);
  put(to.sum_hi, stats.sum.hi);
  put(to.l1_lo, stats.l1.lo);
  put(to.l1_hi, stats.l1.hi);
  put(to.l2, stats.l2);
  put(to.mean, stats.mean);
  put(to.deviation, stats.std);
}

void EventEncoder::Columns::put_memory(wire::MemoryColumnsT& to, const auto& e) {
  put(to.address, e.address);
  put(to.bytes, e.bytes);
  put(to.generation, e.generation);
  put(to.source, e.source);
  put(to.device_type, e.device.type);
  put(to.device_index, e.device.index);
  put(to.stream, e.stream);
  put(to.stack, e.stack.value);
}

void EventEncoder::Columns::operator()(const Copy& e) {
  wire::CopyColumnsT& to = made(chunk.copy);
  put(to.kind, e.kind);
  put(to.destination, e.destination);
  put(to.source, e.source);
  put(to.bytes, e.bytes);
  put(to.stream, e.stream);
}

void EventEncoder::Columns::operator()(const Scope& e) {
  wire::ScopeColumnsT& to = made(chunk.scope);
  put_place(to, e.place);
  put(to.enter, e.enter);
}

void EventEncoder::Columns::operator()(const Finding& e) {
  auto to = std::make_unique<wire::FindingT>();
  to->scope = e.place.scope.value;
  to->call = e.place.call;
  to->phase = static_cast<uint8_t>(e.place.phase);
  to->kind = static_cast<uint8_t>(e.kind);
  to->level = static_cast<uint8_t>(e.level);
  to->suppressed = e.suppressed;
  to->op = e.op.value;
  to->kernel = e.kernel.value;
  to->slot = e.slot.value;
  to->other = e.other.value;
  to->address = e.address;
  to->bytes = e.bytes;
  to->storage = e.value.storage;
  to->storage_offset = e.value.offset;
  to->generation = e.value.generation;
  to->version = e.value.version;
  to->alloc_stack = e.alloc_stack.value;
  to->launch_stack = e.launch_stack.value;
  to->free_stack = e.free_stack.value;
  to->message = cut(e.message);
  put_table(chunk.finding, std::move(to), e.message.size());
}

void EventEncoder::Columns::operator()(const Diagnostic& e) {
  auto to = std::make_unique<wire::DiagnosticT>();
  to->level = static_cast<uint8_t>(e.level);
  to->site = cut(e.site);
  to->message = cut(e.message);
  put_table(chunk.diagnostic, std::move(to), e.site.size() + e.message.size());
}

void EventEncoder::Columns::operator()(const Loss& e) {
  auto to = std::make_unique<wire::LossT>();
  to->reason = static_cast<uint8_t>(e.reason);
  to->count = e.count;
  put_table(chunk.loss, std::move(to), 0);
}

void EventEncoder::Columns::operator()(const Cost& e) {
  auto to = std::make_unique<wire::CostT>();
  to->host_ns = e.host_ns;
  to->device_ns = e.device_ns;
  to->bytes = e.bytes;
  put_table(chunk.cost, std::move(to), 0);
}

EventEncoder::EventEncoder() : columns_(std::make_unique<Columns>()) {}
EventEncoder::~EventEncoder() = default;

Status EventEncoder::add(const Event& event) {
  if (!within_limits(event)) return Status::make(StatusCode::kLimitExceeded, "event");
  columns_->put_common(event);
  std::visit(*columns_, event);
  return kOkStatus;
}

size_t EventEncoder::raw_bytes() const { return columns_->raw_bytes; }
const ChunkSummary& EventEncoder::summary() const { return columns_->summary; }

Bytes EventEncoder::finish(uint64_t first_seq) {
  flatbuffers::FlatBufferBuilder& builder = columns_->builder;
  columns_->chunk.first_seq = first_seq;
  builder.Clear();
  wire::FinishChunkBuffer(builder, wire::Chunk::Pack(builder, &columns_->chunk));
  return std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
}

void EventEncoder::clear() {
  columns_->chunk = wire::ChunkT{};
  columns_->summary = {};
  columns_->raw_bytes = 0;
  columns_->last_t_ns = 0;
}

}  // namespace convtrace::format

#include "format/file/event_encoder.h"

#include <algorithm>
#include <type_traits>

#include "format/file/columns/kind_columns.h"
#include "format/file/columns/launch_columns.h"
#include "format/file/columns/stats_columns.h"
#include "format/file/layout.h"
#include "format/schema/conventions.h"

namespace convtrace::format {
namespace {

/// The size of all columns is added up once in so many events, because that takes longer than an
/// event.
constexpr uint32_t kMeasureEvery = 256;

/// Bytes of the parts whose length depends on the event.
size_t variable_bytes(const auto& e) {
  size_t sum = 0;
  each_borrowed(e, [&sum](const auto& borrowed) { sum += bytes_of_borrowed(borrowed); });
  return sum;
}

bool within_limits(const Launch& e) { return e.operands.size() <= kMaxOperands; }
bool within_limits(const TensorStats& e) {
  return e.shape.size() <= kMaxDims && e.range_hashes.size() <= kMaxRanges &&
         e.pad_rows.size() <= kMaxPadRows && variable_bytes(e) <= kMaxEventBytes;
}
bool within_limits(const auto&) { return true; }  // texts are truncated

bool is_urgent(const Finding& e) { return e.level == Level::kError; }
bool is_urgent(const auto&) { return false; }

template <typename Kind>
constexpr bool kIsNote = std::is_same_v<Kind, Finding> || std::is_same_v<Kind, Loss>;

/// The class that collects the events of a kind.
template <typename Kind>
struct RowsOf : std::conditional_t<kIsTable<Kind>, KindTables<Kind>, KindColumns<Kind>> {};
template <>
struct RowsOf<Launch> : LaunchColumns {};
template <>
struct RowsOf<TensorStats> : StatsColumns {};
template <>
struct RowsOf<Step> : StepColumn {};

}  // namespace

struct EventEncoder::Columns {
  flatbuffers::FlatBufferBuilder builder{kChunkCloseBytes};
  ChunkSummary summary;
  EventHeader first, last;  ///< headers of the chunk's first and last event
  size_t measured_bytes = 0;
  size_t unmeasured_bytes = 0;  ///< variable parts that were added since then
  std::vector<uint8_t> kind;
  PackedColumn time, step, thread;
  OfEachKind<RowsOf> rows;
  uint64_t newest_generation = 0;  ///< generation of the last Alloc
  StepSummer summer;

  explicit Columns(const Definitions& definitions) : summer(definitions) {}
  void put_header(const EventHeader& header, size_t event_kind);
  void put_step(size_t row, uint32_t now);
  [[nodiscard]] size_t packed_bytes() const;
  [[nodiscard]] Bytes finish(uint64_t first_seq);
  [[nodiscard]] TableWriter::Offset write_sums();
  void clear();

  template <typename Kind>
  void put(const Kind& e) {
    auto& to = std::get<RowsOf<Kind>>(rows);
    if constexpr (std::is_same_v<Kind, Launch>) {
      summer.add(e, to.put(e, newest_generation));
    } else {
      to.put(e);
      if constexpr (std::is_same_v<Kind, Alloc>) newest_generation = e.generation;
      if constexpr (requires { summer.add(e); }) summer.add(e);
    }
  }
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
  const size_t count = kind.size();
  const size_t common =
      count + time.packed_bytes(count) + step.packed_bytes(count) + thread.packed_bytes(count);
  return std::apply([=](const auto&... of_kind) { return (common + ... + of_kind.packed_bytes()); },
                    rows);
}

Bytes EventEncoder::Columns::finish(uint64_t first_seq) {
  builder.Clear();
  TableWriter chunk(builder);
  constexpr auto field = wire::field_of<wire::Chunk>;
  chunk.number(field("first_seq"), first_seq);
  chunk.number(field("first_t_ns"), first.t_ns);
  chunk.vector(field("kind"), kind);
  chunk.vector(field("time"), time.pack(kind.size()));
  chunk.vector(field("step"), step.pack(kind.size()));
  chunk.vector(field("thread"), thread.pack(kind.size()));
  const auto write = [&]<typename Kind>(const RowsOf<Kind>& of_kind) {
    chunk.child(wire::kFieldOf<Kind>, of_kind.write(builder));
    // The sums follow the costs, as in version 1.0, so that equal events give equal bytes.
    if constexpr (std::is_same_v<Kind, Cost>) chunk.child(field("sums"), write_sums());
  };
  std::apply([&](const auto&... of_kind) { (write(of_kind), ...); }, rows);
  builder.Finish(flatbuffers::Offset<wire::Chunk>(chunk.finish().o), wire::ChunkIdentifier());
  return std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
}

TableWriter::Offset EventEncoder::Columns::write_sums() {
  const std::unique_ptr<wire::StepSumsT> sums = pack(summer.sums());
  return sums ? wire::StepSums::Pack(builder, sums.get()).Union() : TableWriter::Offset();
}

void EventEncoder::Columns::clear() {
  summary = {};
  measured_bytes = unmeasured_bytes = newest_generation = 0;
  kind.clear();
  time.clear();
  step.clear();
  thread.clear();
  std::apply([](auto&... of_kind) { (of_kind.clear(), ...); }, rows);
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
         std::get<RowsOf<Launch>>(columns_->rows).operand_count() >
             kMaxChunkOperands - kMaxOperands;
}

const ChunkSummary& EventEncoder::summary() const { return columns_->summary; }

Bytes EventEncoder::finish(uint64_t first_seq) { return columns_->finish(first_seq); }

const std::vector<StepSums>& EventEncoder::sums() { return columns_->summer.sums(); }

void EventEncoder::clear() { columns_->clear(); }

}  // namespace convtrace::format

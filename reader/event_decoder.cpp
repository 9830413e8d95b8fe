#include "reader/event_decoder.h"

#include <array>
#include <vector>

#include "format/definitions.h"
#include "format/layout.h"
#include "format/schema/conventions.h"
#include "reader/event_columns.h"

namespace convtrace::reader {
namespace {

using namespace format;

constexpr flatbuffers::uoffset_t kMaxDepth = 16;
constexpr flatbuffers::uoffset_t kMaxTables =
    kMaxChunkEvents + 64;  // one a rare event, and the roots
constexpr size_t kKinds = std::variant_size_v<Event>;

template <typename Enum>
inline constexpr uint8_t kEnumCount = 0;
#define CONVTRACE_ONE(name, value, text) +1
template <>
inline constexpr uint8_t kEnumCount<Phase> = 0 CONVTRACE_PHASES(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<Capture> = 0 CONVTRACE_CAPTURES(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<Extent> = 0 CONVTRACE_EXTENTS(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<MemorySource> = 0 CONVTRACE_MEMORY_SOURCES(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<Confidence> = 0 CONVTRACE_CONFIDENCES(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<NotSampled> = 0 CONVTRACE_NOT_SAMPLED(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<FindingKind> = 0 CONVTRACE_FINDING_KINDS(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<Level> = 0 CONVTRACE_LEVELS(CONVTRACE_ONE);
template <>
inline constexpr uint8_t kEnumCount<LossReason> = 0 CONVTRACE_LOSS_REASONS(CONVTRACE_ONE);
#undef CONVTRACE_ONE
template <>
inline constexpr uint8_t kEnumCount<DType> = kDTypeCount;
template <>
inline constexpr uint8_t kEnumCount<Device::Type> = 3;
template <>
inline constexpr uint8_t kEnumCount<Copy::Kind> = 2;

/// Remembers whether all stored enumerators of an event are known here.
struct Enums {
  bool known = true;

  template <typename Enum>
  Enum operator()(uint8_t stored, Enum) {
    known &= stored < kEnumCount<Enum>;
    return known ? static_cast<Enum>(stored) : Enum{};
  }
};

std::string_view text(const flatbuffers::String* string) {
  return string != nullptr ? std::string_view(string->c_str(), string->size()) : std::string_view();
}

bool text_fits(const flatbuffers::String* string) { return text(string).size() <= kMaxStringBytes; }

template <typename Table>
size_t rows_of(const flatbuffers::Vector<flatbuffers::Offset<Table>>* rows) {
  return rows != nullptr ? rows->size() : 0;
}

std::span<const std::byte> bytes_in(std::span<const uint8_t> values) {
  return std::as_bytes(values);
}

}  // namespace

struct EventDecoder::Impl {
  const wire::Chunk* chunk = nullptr;
  size_t count = 0;
  size_t position = 0;
  uint64_t t_ns = 0;
  std::array<size_t, kKinds> next_row{};

  Column<uint8_t> kind;
  Column<uint64_t> t_delta_ns;
  Column<uint32_t> step, thread;
  LaunchRows launch;
  StatsRows stats;
  MemoryRows alloc, free;
  CopyRows copy;
  ScopeRows scope;
  StepRows step_mark;
  std::vector<Operand> operands;  ///< of the current launch

  bool bind(uint32_t item_count);
  bool rare_texts_fit() const;

  static Place place_at(const PlaceRows& rows, size_t row, Enums& enums);
  template <typename Memory>
  static Memory memory_at(const MemoryRows& rows, size_t row, Enums& enums);
  Launch launch_at(size_t row, Enums& enums);
  TensorStats stats_at(size_t row, Enums& enums);
  Stats values_at(size_t row) const;
  Copy copy_at(size_t row, Enums& enums) const;
  Finding finding_at(size_t row, Enums& enums) const;
  Diagnostic diagnostic_at(size_t row, Enums& enums) const;
  Loss loss_at(size_t row, Enums& enums) const;
  Cost cost_at(size_t row) const;
  Event event_at(size_t kind_index, size_t row, Enums& enums);
};

bool EventDecoder::Impl::bind(uint32_t item_count) {
  count = item_count;
  std::array<size_t, kKinds> rows{};
  if (!kind.bind(chunk->kind(), count) || kind.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (kind[i] < kKinds) ++rows[kind[i]];
  }
  return t_delta_ns.bind(chunk->t_delta_ns(), count) && step.bind(chunk->step(), count) &&
         thread.bind(chunk->thread(), count) && launch.bind(chunk->launch(), rows[0]) &&
         stats.bind(chunk->stats(), rows[1]) && alloc.bind(chunk->alloc(), rows[2]) &&
         free.bind(chunk->free(), rows[3]) && copy.bind(chunk->copy(), rows[4]) &&
         scope.bind(chunk->scope(), rows[5]) && step_mark.bind(chunk->step_mark(), rows[6]) &&
         rows_of(chunk->finding()) == rows[7] && rows_of(chunk->diagnostic()) == rows[8] &&
         rows_of(chunk->loss()) == rows[9] && rows_of(chunk->cost()) == rows[10] &&
         rare_texts_fit();
}

bool EventDecoder::Impl::rare_texts_fit() const {
  for (size_t i = 0; i < rows_of(chunk->finding()); ++i) {
    if (!text_fits(chunk->finding()->Get(static_cast<uint32_t>(i))->message())) return false;
  }
  for (size_t i = 0; i < rows_of(chunk->diagnostic()); ++i) {
    const wire::Diagnostic* row = chunk->diagnostic()->Get(static_cast<uint32_t>(i));
    if (!text_fits(row->site()) || !text_fits(row->message())) return false;
  }
  return true;
}

Place EventDecoder::Impl::place_at(const PlaceRows& rows, size_t row, Enums& enums) {
  return {
      .scope = {rows.scope[row]}, .call = rows.call[row], .phase = enums(rows.phase[row], Phase{})};
}

Launch EventDecoder::Impl::launch_at(size_t row, Enums& enums) {
  Launch e;
  e.place = place_at(launch.place, row, enums);
  e.kernel = {launch.kernel[row]};
  for (size_t axis = 0; axis < 3; ++axis) {
    e.grid[axis] = launch.grid[axis][row];
    e.block[axis] = launch.block[axis][row];
  }
  e.shared_bytes = launch.shared_bytes[row];
  e.stream = launch.stream[row];
  e.device = launch.device[row];
  e.sampled = enums(launch.sampled[row], NotSampled{});
  operands.resize(launch.operand_count[row]);
  for (Operand& operand : operands) {
    const size_t at = launch.next_operand++;
    operand = {.param = launch.operand_param[at],
               .word = launch.operand_word[at],
               .confidence = enums(launch.operand_confidence[at], Confidence{}),
               .address = launch.operand_address[at],
               .generation = launch.operand_generation[at],
               .offset = launch.operand_offset[at]};
  }
  e.operands = operands;
  return e;
}

TensorStats EventDecoder::Impl::stats_at(size_t row, Enums& enums) {
  TensorStats e;
  e.place = place_at(stats.place, row, enums);
  e.slot = {stats.slot[row]};
  e.op = {stats.op[row]};
  e.kernel = {stats.kernel[row]};
  e.device = {enums(stats.device_type[row], Device::Type{}), stats.device_index[row]};
  e.dtype = enums(stats.dtype[row], DType{});
  e.extent = enums(stats.extent[row], Extent{});
  const bool has_values = stats.capture[row] != static_cast<uint8_t>(Capture::kHash);
  e.capture = enums(stats.capture[row], Capture{});
  e.value = {.storage = stats.storage[row],
             .offset = stats.storage_offset[row],
             .generation = stats.generation[row],
             .version = stats.version[row]};
  e.address = stats.address[row];
  e.bytes = stats.bytes[row];
  e.has_shape = stats.rank[row] != wire::kRankUnknown;
  if (e.has_shape) e.shape = stats.shape.take(stats.rank[row]);
  e.variant = stats.variant[row];
  e.range_hashes = stats.range_hashes.take(stats.range_count[row]);
  e.samples = bytes_in(stats.samples.take(stats.sample_bytes[row]));
  e.leading = bytes_in(stats.leading.take(stats.leading_bytes[row]));
  if (has_values) e.stats = values_at(stats.values.next++);
  e.stats.count = stats.count[row];
  e.stats.hash = stats.hash[row];
  return e;
}

Stats EventDecoder::Impl::values_at(size_t row) const {
  const ValueRows& v = stats.values;
  return {.count = 0,
          .finite = v.finite[row],
          .nan = v.nan[row],
          .pos_inf = v.pos_inf[row],
          .neg_inf = v.neg_inf[row],
          .pos_zero = v.pos_zero[row],
          .neg_zero = v.neg_zero[row],
          .positive = v.positive[row],
          .negative = v.negative[row],
          .subnormal = v.subnormal[row],
          .saturated = v.saturated[row],
          .min = {v.min[row]},
          .max = {v.max[row]},
          .amax = {v.amax[row]},
          .amin_nonzero = {v.amin_nonzero[row]},
          .sum = {v.sum_lo[row], v.sum_hi[row]},
          .l1 = {v.l1_lo[row], v.l1_hi[row]},
          .l2 = v.l2[row],
          .mean = v.mean[row],
          .std = v.deviation[row],
          .hash = 0};
}

template <typename Memory>
Memory EventDecoder::Impl::memory_at(const MemoryRows& rows, size_t row, Enums& enums) {
  Memory e;
  e.address = rows.address[row];
  e.bytes = rows.bytes[row];
  e.generation = rows.generation[row];
  e.source = enums(rows.source[row], MemorySource{});
  e.device = {enums(rows.device_type[row], Device::Type{}), rows.device_index[row]};
  e.stream = rows.stream[row];
  e.stack = {rows.stack[row]};
  return e;
}

Copy EventDecoder::Impl::copy_at(size_t row, Enums& enums) const {
  Copy e;
  e.kind = enums(copy.kind[row], Copy::Kind{});
  e.destination = copy.destination[row];
  e.source = copy.source[row];
  e.bytes = copy.bytes[row];
  e.stream = copy.stream[row];
  return e;
}

Finding EventDecoder::Impl::finding_at(size_t row, Enums& enums) const {
  const wire::Finding& from = *chunk->finding()->Get(static_cast<uint32_t>(row));
  Finding e;
  e.place = {{from.scope()}, from.call(), enums(from.phase(), Phase{})};
  e.kind = enums(from.kind(), FindingKind{});
  e.level = enums(from.level(), Level{});
  e.suppressed = from.suppressed();
  e.op = {from.op()};
  e.kernel = {from.kernel()};
  e.slot = {from.slot()};
  e.other = {from.other()};
  e.address = from.address();
  e.bytes = from.bytes();
  e.value = {from.storage(), from.storage_offset(), from.generation(), from.version()};
  e.alloc_stack = {from.alloc_stack()};
  e.launch_stack = {from.launch_stack()};
  e.free_stack = {from.free_stack()};
  e.message = text(from.message());
  return e;
}

Diagnostic EventDecoder::Impl::diagnostic_at(size_t row, Enums& enums) const {
  const wire::Diagnostic& from = *chunk->diagnostic()->Get(static_cast<uint32_t>(row));
  Diagnostic e;
  e.level = enums(from.level(), Level{});
  e.site = text(from.site());
  e.message = text(from.message());
  return e;
}

Loss EventDecoder::Impl::loss_at(size_t row, Enums& enums) const {
  const wire::Loss& from = *chunk->loss()->Get(static_cast<uint32_t>(row));
  Loss e;
  e.reason = enums(from.reason(), LossReason{});
  e.count = from.count();
  return e;
}

Cost EventDecoder::Impl::cost_at(size_t row) const {
  const wire::Cost& from = *chunk->cost()->Get(static_cast<uint32_t>(row));
  Cost e;
  e.host_ns = from.host_ns();
  e.device_ns = from.device_ns();
  e.bytes = from.bytes();
  return e;
}

/// @pre kind_index < kKinds
Event EventDecoder::Impl::event_at(size_t kind_index, size_t row, Enums& enums) {
  switch (kind_index) {
    case 0:
      return launch_at(row, enums);
    case 1:
      return stats_at(row, enums);
    case 2:
      return memory_at<Alloc>(alloc, row, enums);
    case 3:
      return memory_at<Free>(free, row, enums);
    case 4:
      return copy_at(row, enums);
    case 5:
      return Scope{
          .header = {}, .place = place_at(scope.place, row, enums), .enter = scope.enter[row] != 0};
    case 6:
      return Step{.header = {}, .index = step_mark.index[row]};
    case 7:
      return finding_at(row, enums);
    case 8:
      return diagnostic_at(row, enums);
    case 9:
      return loss_at(row, enums);
    default:
      return cost_at(row);
  }
}

EventDecoder::EventDecoder() : impl_(std::make_unique<Impl>()) {}
EventDecoder::~EventDecoder() = default;

Status EventDecoder::load(Bytes raw, uint32_t item_count) {
  clear();
  if (item_count > kMaxChunkEvents) return Status::make(StatusCode::kLimitExceeded, "chunk");
  const auto* data = reinterpret_cast<const uint8_t*>(raw.data());
  flatbuffers::Verifier verifier(data, raw.size(), kMaxDepth, kMaxTables);
  if (!wire::VerifyChunkBuffer(verifier)) return Status::make(StatusCode::kCorrupt, "chunk");
  impl_->chunk = wire::GetChunk(data);
  if (!impl_->bind(item_count)) {
    clear();
    return Status::make(StatusCode::kCorrupt, "columns");
  }
  return kOkStatus;
}

void EventDecoder::clear() { *impl_ = Impl{}; }

EventDecoder::Outcome EventDecoder::next(Event& event) {
  Impl& impl = *impl_;
  if (impl.position == impl.count) return Outcome::kEnd;
  const size_t i = impl.position++;
  impl.t_ns += impl.t_delta_ns[i];
  const uint8_t kind = impl.kind[i];
  if (kind >= kKinds) return Outcome::kNotUnderstood;
  Enums enums;
  Event decoded = impl.event_at(kind, impl.next_row[kind]++, enums);
  if (!enums.known) return Outcome::kNotUnderstood;
  header_of(decoded) = {impl.chunk->first_seq() + i, impl.t_ns, impl.step[i], impl.thread[i]};
  event = decoded;
  return Outcome::kEvent;
}

}  // namespace convtrace::reader

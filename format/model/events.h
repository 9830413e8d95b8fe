#pragma once
/// @file events.h
/// The events of a trace: one plain struct per event kind, shared by recorder, writer and reader.
///
/// Place:     built by cupti/ and interposer/, copied through the queue, encoded by
///            event_encoder.h, decoded by reader/event_decoder.h.
/// Ownership: spans and string_views are borrowed. A sink copies what it needs before it returns; a
///            reader's events are valid until it moves to the next chunk.
/// Threads:   plain values.
/// Source:    columns and units of every kind: format/FORMAT.md "Events".

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <variant>

#include "format/base/level.h"
#include "format/base/messages.h"
#include "format/model/collective.h"
#include "format/model/dtype.h"
#include "format/model/event_parts.h"
#include "format/model/stats.h"

namespace convtrace::format {

struct Launch {
  EventHeader header;
  Place place;
  KernelId kernel;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;  ///< dynamic shared memory
  uint64_t stream = 0;        ///< driver handle; 0 the default stream
  uint8_t device = 0;         ///< CUDA ordinal
  SampleOutcome sampled = SampleOutcome::kNotAsked;
  std::span<const Operand> operands;
  static constexpr std::string_view kName = "launch";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kFixed<1>, "place", e.place);
    visit(kFixed<4>, "kernel", e.kernel);
    visit(kFixed<5>, "grid", e.grid);
    visit(kFixed<8>, "block", e.block);
    visit(kFixed<11>, "shared_bytes", e.shared_bytes);
    visit(kFixed<12>, "stream", e.stream);
    visit(kFixed<13>, "device", e.device);
    visit(kFixed<14>, "sampled", e.sampled);
    visit(kCount<15, 2>, "operand_count", e.operands);
  }
};

struct TensorStats {
  EventHeader header;
  Place place;
  StringId slot;  ///< "output:0", "input:1", "grad_output:0", "param:weight", "loss", "arg:3", ...
  StringId op;    ///< custom or ATen op, or none
  KernelId kernel;  ///< raw kernel, or none
  Device device;
  DType dtype = DType::kUnknown;
  Extent extent = Extent::kTensor;
  Capture capture = Capture::kStats;
  ValueId value;
  uint64_t address = 0;
  uint64_t bytes = 0;               ///< bytes of the logical elements
  bool has_shape = false;           ///< false: shape unknown; true with an empty shape: a scalar
  std::span<const uint64_t> shape;  ///< at most kMaxDims
  Stats stats;                      ///< kHash: only hash and count hold
  uint32_t variant = 0;  ///< which kernel variant computed the floating sums; 0 the reference
  std::span<const uint64_t>
      range_hashes;  ///< hashes of equal consecutive ranges, at most kMaxRanges
  std::span<const std::byte>
      samples;  ///< raw elements at floor(i*count/8), i < 8; all if count <= kMaxWhole
  std::span<const std::byte> leading;  ///< the first elements, as many as were asked for
  /// For an operand that neither a rule nor a signature declares an output: number of launches in
  /// which its memory was hashed before and after, and of those in which the hash changed, this
  /// launch included. 0: declared, or never compared.
  uint32_t looks = 0;
  uint32_t changes = 0;
  /// For indices that an embedding looks up and labels of a loss; kNone: no other tensor has padding.
  Padding padding = Padding::kNone;
  int64_t pad_index = 0;                 ///< the index that stands for padding
  uint64_t pad_count = 0;                ///< elements that are pad_index, or kNotCounted
  std::span<const uint64_t> pad_rows{};  ///< pad_count of each row of a batch, or empty
  /// Elements whose bits are all those of CONVTRACE_POISON; on a GPU, of an op's inputs and outputs
  /// those among the samples.
  uint64_t poisoned = 0;
  uint64_t collective = 0;  ///< `id` of the Collective that sent or received it, or 0
  /// In which order the elements lie in memory: 0 row by row, without gaps; else a number of the
  /// extents and strides. Only values of one layout show one memory in one order.
  uint64_t layout = 0;
  static constexpr std::string_view kName = "stats";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kFixed<1>, "place", e.place);
    visit(kFixed<4>, "slot", e.slot);
    visit(kFixed<5>, "op", e.op);
    visit(kFixed<6>, "kernel", e.kernel);
    visit(kFixed<7>, "device", e.device);
    visit(kFixed<9>, "dtype", e.dtype);
    visit(kFixed<10>, "extent", e.extent);
    visit(kFixed<11>, "capture", e.capture);
    visit(kVarying<20>, "value", e.value);
    visit(kVarying<24>, "address", e.address);
    visit(kFixed<12>, "bytes", e.bytes);
    visit(kOwn, "has_shape", e.has_shape);
    visit(kCount<15, 1>, "rank", e.shape);
    visit(kFixed<13>, "count", e.stats.count);
    visit(kVarying<25>, "stats", e.stats);
    visit(kVarying<58>, "sketch_exponent", e.stats.sketch.exponent);
    visit(kFixed<14>, "variant", e.variant);
    visit(kCount<16, 2>, "range_count", e.range_hashes);
    visit(kCount<17, 4>, "sample_bytes", e.samples);
    visit(kCount<18, 4>, "leading_bytes", e.leading);
    visit(kVarying<50>, "looks", e.looks);
    visit(kVarying<51>, "changes", e.changes);
    visit(kFixed<53>, "padding", e.padding);
    visit(kFixed<54>, "pad_index", e.pad_index);
    visit(kVarying<52>, "pad_count", e.pad_count);
    visit(kCount<55, 2>, "pad_row_count", e.pad_rows);
    visit(kVarying<57>, "poisoned", e.poisoned);
    visit(kVarying<60>, "collective", e.collective);
    visit(kVarying<61>, "layout", e.layout);
  }
};
inline constexpr size_t kMaxDims = 16;
inline constexpr size_t kMaxRanges = 256;
inline constexpr size_t kMaxPadRows = 4096;
/// A device does not count padding. Its zeros and negative elements are counted among the
/// statistics.
inline constexpr uint64_t kNotCounted = UINT64_MAX;

/// The fields of Alloc and Free.
constexpr void memory_fields(auto& e, const auto& visit) {
  visit(kVarying<7>, "address", e.address);
  visit(kFixed<1>, "bytes", e.bytes);
  visit(kCounting<8>, "generation", e.generation);
  visit(kFixed<2>, "source", e.source);
  visit(kFixed<5>, "stream", e.stream);
  visit(kFixed<3>, "device", e.device);
  visit(kFixed<6>, "stack", e.stack);
}

struct Alloc {
  EventHeader header;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;
  MemorySource source = MemorySource::kDriver;
  Device device;
  uint64_t stream = 0;
  StackId stack;
  static constexpr std::string_view kName = "alloc";
  static constexpr void fields(auto& e, const auto& visit) { memory_fields(e, visit); }
};

struct Free {
  EventHeader header;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;
  MemorySource source = MemorySource::kDriver;
  Device device;
  uint64_t stream = 0;
  StackId stack;
  static constexpr std::string_view kName = "free";
  static constexpr void fields(auto& e, const auto& visit) { memory_fields(e, visit); }
};

/// A change of device memory by other means than a kernel.
struct Copy {
  using Kind = CopyKind;
  EventHeader header;
  Kind kind = Kind::kCopy;
  uint64_t destination = 0;
  uint64_t source = 0;  ///< kSet: the value
  uint64_t bytes = 0;
  uint64_t stream = 0;
  static constexpr std::string_view kName = "copy";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kFixed<1>, "kind", e.kind);
    visit(kVarying<4>, "destination", e.destination);
    visit(kVarying<5>, "source", e.source);
    visit(kFixed<2>, "bytes", e.bytes);
    visit(kFixed<3>, "stream", e.stream);
  }
};

/// A module was entered or left.
struct Scope {
  EventHeader header;
  Place place;
  bool enter = true;
  static constexpr std::string_view kName = "scope";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kFixed<1>, "place", e.place);
    visit(kFixed<4>, "enter", e.enter);
  }
};

/// A training step begins.
struct Step {
  EventHeader header;
  uint32_t index = 0;
  static constexpr std::string_view kName = "step";
  static constexpr void fields(auto& e, const auto& visit) { visit(kOwn, "step", e.index); }
};

struct Finding {
  EventHeader header;
  Place place;
  FindingKind kind = FindingKind::kOutputAliasesInput;
  Level level = Level::kWarning;
  bool suppressed = false;
  StringId op;
  KernelId kernel;
  StringId slot;         ///< the output
  StringId other;        ///< the aliased slot
  uint64_t address = 0;  ///< first byte in common
  uint64_t bytes = 0;    ///< bytes in common
  ValueId value;         ///< identity of the output, joins TensorStats
  StackId alloc_stack, launch_stack, free_stack;
  std::string_view message;
  static constexpr std::string_view kName = "finding";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kField<3>, "kind", e.kind);
    visit(kField<4>, "level", e.level);
    visit(kField<0>, "place", e.place);
    visit(kField<6>, "op", e.op);
    visit(kField<7>, "kernel", e.kernel);
    visit(kField<8>, "slot", e.slot);
    visit(kField<9>, "other", e.other);
    visit(kField<10>, "address", e.address);
    visit(kField<11>, "bytes", e.bytes);
    visit(kField<12>, "value", e.value);
    visit(kField<19>, "message", e.message);
    visit(kField<16>, "alloc_stack", e.alloc_stack);
    visit(kField<17>, "launch_stack", e.launch_stack);
    visit(kField<18>, "free_stack", e.free_stack);
    visit(kField<5>, "suppressed", e.suppressed);
  }
};

/// Site of the Diagnostic after which allocations and frees of CPU tensors are not recorded.
inline constexpr const char* kCpuMemorySite = messages::kCpuUnwatched.site;

/// Something convtrace noticed about itself or its surroundings.
struct Diagnostic {
  EventHeader header;
  Level level = Level::kWarning;
  std::string_view site;
  std::string_view message;
  static constexpr std::string_view kName = "diagnostic";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kField<0>, "level", e.level);
    visit(kField<1>, "site", e.site);
    visit(kField<2>, "message", e.message);
  }
};

/// Records that are not in the trace.
struct Loss {
  EventHeader header;
  LossReason reason = LossReason::kQueueFull;
  uint64_t count = 0;
  static constexpr std::string_view kName = "loss";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kField<0>, "reason", e.reason);
    visit(kField<1>, "count", e.count);
  }
};

/// convtrace's own cost since the previous Cost.
struct Cost {
  EventHeader header;
  uint64_t host_ns = 0;
  uint64_t device_ns = 0;
  uint64_t bytes = 0;  ///< written to the file
  static constexpr std::string_view kName = "cost";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kField<0>, "host_ns", e.host_ns);
    visit(kField<1>, "device_ns", e.device_ns);
    visit(kField<2>, "bytes", e.bytes);
  }
};

/// A call that orders streams, or the host and a stream. Handles come again once they are
/// destroyed, as addresses do.
struct Sync {
  EventHeader header;
  SyncKind kind = SyncKind::kEventRecord;
  uint8_t device = 0;   ///< CUDA ordinal
  uint64_t stream = 0;  ///< driver handle; 0 the default stream, or none
  uint64_t event = 0;   ///< driver handle, or 0
  uint32_t flags = 0;   ///< that the event or stream was made with
  static constexpr std::string_view kName = "sync";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kFixed<1>, "kind", e.kind);
    visit(kFixed<2>, "device", e.device);
    visit(kFixed<3>, "stream", e.stream);
    visit(kFixed<4>, "event", e.event);
    visit(kFixed<5>, "flags", e.flags);
  }
};

/// A tagged op (torch.library, autograd.Function) and the memory that it took and gave: one event
/// for its begin, each tensor and its end, one after another on its thread. Also the tensors of a
/// collective that a program has to wait for.
struct Op {
  EventHeader header;
  Place place;
  OpMoment moment = OpMoment::kBegin;
  bool declares_alias = false;  ///< end: it says that outputs may share memory with inputs
  bool has_schema = false;      ///< end: a torch.library op, whose schema declares aliasing
  bool written = false;  ///< input: declared, or known to the framework, as written in place;
                         ///< in flight: by the collective; awaited: meanwhile, by the program
  bool frees_reported = false;  ///< the allocator of its memory reports frees
  bool borrows = false;  ///< output: its storage cannot be resized, as one in another's memory
  StringId op;
  StringId slot;  ///< slot of the tensor, as in TensorStats
  Device device;
  uint64_t address = 0;
  uint64_t bytes = 0;          ///< from the first to the last byte of the elements
  ValueId value;               ///< death: the storage alone
  uint64_t storage_bytes = 0;  ///< from address - value.offset on
  StackId stack;  ///< input: where its memory was allocated; stack, death: where that happened
  static constexpr std::string_view kName = "op";
  static constexpr void fields(auto& e, const auto& visit) {
    using enum OpMoment;
    const bool output = e.moment == kOutput;
    const bool tensor =
        output || e.moment == kInput || e.moment == kInFlight || e.moment == kAwaited;
    const bool end = e.moment == kEnd, stack = e.moment == kStack;
    visit(kFixed<4>, "moment", e.moment);
    visit(kFixed<1>, "place", e.place);
    visit(kFixed<6>, "op", e.op);
    visit(kVarying<14>, "value", e.value, tensor || e.moment == kStorageDeath);
    visit(kFixed<7>, "slot", e.slot, tensor || (stack && e.slot));
    visit(kFixed<8>, "device", e.device, tensor);
    visit(kVarying<13>, "address", e.address, tensor);
    visit(kFixed<10>, "bytes", e.bytes, tensor);
    visit(kFixed<11>, "storage_bytes", e.storage_bytes, tensor);
    visit(kFlag<5, 2>, "written", e.written, tensor);
    visit(kFlag<5, 3>, "frees_reported", e.frees_reported, tensor);
    visit(kFlag<5, 4>, "borrows", e.borrows, output);
    visit(kFlag<5, 0>, "declares_alias", e.declares_alias, end);
    visit(kFlag<5, 1>, "has_schema", e.has_schema, end);
    visit(kFixed<12>, "stack", e.stack);
  }
};

/// A value that influences results and is no tensor, valid from this event on: a module's class and
/// its settings, a setting of an optimizer, the state of a random generator. Recorded when first seen
/// and whenever it has changed.
struct Fact {
  EventHeader header;
  StringId scope;  ///< qualified module name, or none: of the program
  StringId name;   ///< "class", "attributes", "optimizer.0.0.lr", "rng.torch", ...
  std::string_view value;
  static constexpr std::string_view kName = "fact";
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kField<0>, "scope", e.scope);
    visit(kField<1>, "name", e.name);
    visit(kField<2>, "value", e.value);
  }
};

/// @return whether a fact is the location of code. It does not influence results: an edit above the
/// code changes it.
inline bool is_location(std::string_view fact) {
  return fact == "forward" || fact == "call" || fact.starts_with("backward.call");
}

/// The order of alternatives is the stored event kind: append only.
using Event = std::variant<Launch, TensorStats, Alloc, Free, Copy, Scope, Step, Finding, Diagnostic,
                           Loss, Cost, Sync, Op, Fact, Collective>;

namespace detail {
template <typename... Kinds>
constexpr std::array<std::string_view, sizeof...(Kinds)> names_of(std::variant<Kinds...>*) {
  return {Kinds::kName...};
}
template <typename Kind, typename... Kinds>
constexpr size_t number_of(std::variant<Kinds...>*) {
  size_t number = 0;
  (void)((std::is_same_v<Kind, Kinds> || (++number, false)) || ...);
  return number;
}
template <template <typename> typename Of, typename... Kinds>
std::tuple<Of<Kinds>...> tuple_of(std::variant<Kinds...>*);
}  // namespace detail

/// How many kinds there are, and the stored number of each: kKindOf<Launch> is 0. The types are the
/// enumeration; an enum beside them would be a second list.
inline constexpr size_t kKinds = std::variant_size_v<Event>;
template <typename Kind>
inline constexpr size_t kKindOf = detail::number_of<Kind>(static_cast<Event*>(nullptr));

/// One Of<Kind> for each kind, in their order.
template <template <typename> typename Of>
using OfEachKind = decltype(detail::tuple_of<Of>(static_cast<Event*>(nullptr)));

/// @return the value of `record` in JSON for each alternative of Event.
constexpr std::string_view event_name(size_t kind) {
  constexpr auto kNames = detail::names_of(static_cast<Event*>(nullptr));
  return kind < kKinds ? kNames[kind] : "unknown";
}

/// As std::visit, without the jump table that libstdc++ uses for more than eleven alternatives. Where
/// the visitor does the same for all of them, as in header_of(), no branch remains.
/// @pre the event holds something.
template <size_t kKind = 0, typename Visitor, typename AnyEvent>
constexpr decltype(auto) visit_event(Visitor&& visitor, AnyEvent& event) {
  if constexpr (kKind + 1 < std::variant_size_v<Event>) {
    if (event.index() != kKind) return visit_event<kKind + 1>(visitor, event);
  }
  return visitor(*std::get_if<kKind>(&event));
}

inline EventHeader& header_of(Event& event) {
  return visit_event([](auto& e) -> EventHeader& { return e.header; }, event);
}
inline const EventHeader& header_of(const Event& event) {
  return visit_event([](const auto& e) -> const EventHeader& { return e.header; }, event);
}

}  // namespace convtrace::format

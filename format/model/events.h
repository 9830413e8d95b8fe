#pragma once
/// @file events.h
/// What a trace says happened: one plain struct per event kind, the same for those who record,
/// store and read.
///
/// Place:     built by cupti/ and interposer/, copied through the queue, encoded by
///            event_encoder.h, decoded by reader/event_decoder.h.
/// Ownership: spans and string_views are borrowed. A sink copies what it needs before it returns; a
///            reader's events are valid until it moves to the next chunk.
/// Threads:   plain values.
/// Source:    columns and units of every kind: format/FORMAT.md "Events".

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "format/base/level.h"
#include "format/base/named_enum.h"
#include "format/model/dtype.h"
#include "format/model/ids.h"
#include "format/model/stats.h"

namespace convtrace::format {

/// Step of a record whose step is not known. Steps count from 0; what precedes the first forward
/// has step 0.
inline constexpr uint32_t kNoStep = 0xFFFFFFFF;

/// Values are stored: append only, in every enum of this file. X(enumerator, value, spelling in
/// JSON).
#define CONVTRACE_PHASES(X)             \
  X(kForward, 0, "forward")             \
  X(kData, 1, "data")                   \
  X(kLoss, 2, "loss")                   \
  X(kBackward, 3, "backward")           \
  X(kOptimizer, 4, "optimizer")         \
  X(kRecompute, 5, "recompute")         \
  X(kCommunication, 6, "communication") \
  X(kEvaluation, 7, "evaluation")

#define CONVTRACE_CAPTURES(X) \
  X(kHash, 0, "hash")         \
  X(kStats, 1, "stats")       \
  X(kSnapshot, 2, "snapshot")

/// `tensor`: the bytes are known to be the tensor's. `block`: a whole allocation, which may hold
/// padding.
#define CONVTRACE_EXTENTS(X) \
  X(kTensor, 0, "tensor")    \
  X(kBlock, 1, "block")

#define CONVTRACE_MEMORY_SOURCES(X)      \
  X(kDriver, 0, "driver")                \
  X(kStreamOrdered, 1, "stream-ordered") \
  X(kVirtual, 2, "virtual")              \
  X(kFramework, 3, "framework")          \
  X(kHost, 4, "host")                    \
  X(kForeign, 5, "foreign")              \
  X(kMulticast, 6, "multicast")

#define CONVTRACE_CONFIDENCES(X)             \
  X(kPointerBase, 0, "pointer-base")         \
  X(kPointerInterior, 1, "pointer-interior") \
  X(kWordBase, 2, "word-base")               \
  X(kWordInterior, 3, "word-interior")

/// Whether one index of an integer tensor stands for "nothing here", and who says so.
#define CONVTRACE_PADDINGS(X)   \
  X(kNone, 0, "none")           \
  X(kEmbedding, 1, "embedding") \
  X(kLabels, 2, "labels")

/// Why no values were computed for a launch. kSampled: they were.
#define CONVTRACE_NOT_SAMPLED(X)                             \
  X(kSampled, 0, "sampled")                                  \
  X(kNotAsked, 1, "no rule asks for it")                     \
  X(kObservedOnly, 2, "launched outside the gate")           \
  X(kCapturing, 3, "stream is capturing")                    \
  X(kNotReady, 4, "context not prepared yet")                \
  X(kRingFull, 5, "result ring full")                        \
  X(kGpuWorkOff, 6, "GPU work is off after an error")        \
  X(kNoOutput, 7, "no output operand found")                 \
  X(kLaunchFailed, 8, "the launch failed")                   \
  X(kWrongStream, 9, "the stream did not produce the block") \
  X(kCaptured, 10, "recorded into a graph, not run")         \
  X(kInGraph, 11, "run by a graph launch")                   \
  X(kMayWait, 12, "it may wait for other work")

#define CONVTRACE_FINDING_KINDS(X)                  \
  X(kFreedUnderOutput, 0, "freed-under-output")     \
  X(kUseAfterFree, 1, "use-after-free")             \
  X(kStaleRead, 2, "stale-read")                    \
  X(kCrossStreamReuse, 3, "cross-stream-reuse")     \
  X(kOutputAliasesInput, 4, "output-aliases-input") \
  X(kInputMutated, 5, "input-mutated")              \
  X(kAutotuneMutation, 6, "autotune-mutation")      \
  X(kNeverWritten, 7, "never-written")              \
  X(kAliasPatternDiffers, 8, "alias-pattern-differs")

#define CONVTRACE_LOSS_REASONS(X)                                    \
  X(kQueueFull, 0, "queue full")                                     \
  X(kRecordTooLarge, 1, "record too large")                          \
  X(kWriteFailed, 2, "write failed")                                 \
  X(kDiskBudget, 3, "disk budget reached")                           \
  X(kRingFull, 4, "statistics ring full")                            \
  X(kTensorKind, 5, "tensor kind not supported")                     \
  X(kStreamUnsafe, 6, "stream not safe to use")                      \
  X(kExitDeadline, 7, "process ended first")                         \
  X(kGpuWorkOff, 8, "GPU work is off after an error")                \
  X(kDamage, 9, "damaged part of the file")                          \
  X(kContextEnded, 10, "its CUDA context ended first")               \
  X(kGraphUnseen, 11, "kernels of a graph that cannot be seen")      \
  X(kValueNotStored, 12, "no memory for the value, statistics only") \
  X(kValueLeftOut, 13, "no memory for the value, left out")          \
  X(kGraphMemory, 14, "copies and allocations inside a graph")

/// What orders work on the GPU beside its place in a stream: calls that make or end an event or a
/// stream, or that let one stream, or the host, know of the work of another. From kCaptureBegin to
/// kCaptureEnd a stream records what it is given instead of doing it.
#define CONVTRACE_SYNC_KINDS(X)          \
  X(kEventRecord, 0, "event-record")     \
  X(kStreamWait, 1, "stream-wait")       \
  X(kEventDone, 2, "event-done")         \
  X(kStreamDone, 3, "stream-done")       \
  X(kContextDone, 4, "context-done")     \
  X(kEventCreate, 5, "event-create")     \
  X(kEventDestroy, 6, "event-destroy")   \
  X(kStreamCreate, 7, "stream-create")   \
  X(kStreamDestroy, 8, "stream-destroy") \
  X(kCaptureBegin, 9, "capture-begin")   \
  X(kCaptureEnd, 10, "capture-end")

/// What an Op event tells of a tagged op's call: that it begins, what it took and gave, that it has
/// returned; where it was called, if its output shares memory with an input; later, that a storage
/// that it took or gave has died.
#define CONVTRACE_OP_MOMENTS(X) \
  X(kBegin, 0, "begin")         \
  X(kInput, 1, "input")         \
  X(kOutput, 2, "output")       \
  X(kEnd, 3, "end")             \
  X(kStack, 4, "stack")         \
  X(kStorageDeath, 5, "storage-death")

CONVTRACE_NAMED_ENUM(Phase, CONVTRACE_PHASES)
CONVTRACE_NAMED_ENUM(Capture, CONVTRACE_CAPTURES)
CONVTRACE_NAMED_ENUM(Extent, CONVTRACE_EXTENTS)
CONVTRACE_NAMED_ENUM(MemorySource, CONVTRACE_MEMORY_SOURCES)
CONVTRACE_NAMED_ENUM(Confidence, CONVTRACE_CONFIDENCES)
CONVTRACE_NAMED_ENUM(Padding, CONVTRACE_PADDINGS)
CONVTRACE_NAMED_ENUM(NotSampled, CONVTRACE_NOT_SAMPLED)
CONVTRACE_NAMED_ENUM(FindingKind, CONVTRACE_FINDING_KINDS)
CONVTRACE_NAMED_ENUM(LossReason, CONVTRACE_LOSS_REASONS)
CONVTRACE_NAMED_ENUM(SyncKind, CONVTRACE_SYNC_KINDS)
CONVTRACE_NAMED_ENUM(OpMoment, CONVTRACE_OP_MOMENTS)

/// A device: `cpu` (index 0) or `cuda:<index>`; kOther is anything else a framework names.
struct Device {
  enum class Type : uint8_t { kCpu = 0, kCuda = 1, kOther = 2 };
  Type type = Type::kCpu;
  uint8_t index = 0;
  constexpr bool operator==(const Device&) const = default;
};
template <>
inline constexpr size_t kEnumCount<Device::Type> = 3;

/// Common to all events.
struct EventHeader {
  uint64_t seq = 0;     ///< strictly ascending in a file; given by the writer, not by who emits
  uint64_t t_ns = 0;    ///< CLOCK_MONOTONIC
  uint32_t step = 0;    ///< training step, or kNoStep
  uint32_t thread = 0;  ///< native thread id (gettid)
};

/// Where in the training program something happened. Addresses, times and module indices never
/// enter: two runs that do the same have equal places.
struct Place {
  StringId scope;     ///< qualified module name; "" (an interned empty text) is the root, none =
                      ///< outside any module
  uint32_t call = 0;  ///< how often this scope was called before, in this step and phase
  Phase phase = Phase::kForward;
};

/// One kernel parameter word that points into memory we know.
struct Operand {
  uint16_t param = 0;  ///< kernel parameter position
  uint16_t word = 0;   ///< byte offset of the word inside the parameter
  Confidence confidence = Confidence::kPointerBase;
  uint64_t address = 0;
  uint64_t generation = 0;  ///< life of the memory it points into; 0 unknown
  uint64_t offset = 0;      ///< bytes from the generation's base
};

struct Launch {
  EventHeader header;
  Place place;
  KernelId kernel;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;  ///< dynamic shared memory
  uint64_t stream = 0;        ///< driver handle; 0 the default stream
  uint8_t device = 0;         ///< CUDA ordinal
  NotSampled sampled = NotSampled::kNotAsked;
  std::span<const Operand> operands;
};

/// Identity of a value: which memory, in which life of it, after how many in-place writes the
/// framework knows of. Two records of one run with equal identities were meant to see the same
/// bytes.
struct ValueId {
  uint64_t storage =
      0;  ///< identity of the storage that owns the memory; never reused inside a trace
  uint64_t offset = 0;      ///< bytes from the storage's base
  uint64_t generation = 0;  ///< life of the allocation below it; 0 unknown
  uint32_t version = 0;     ///< framework's in-place version counter
  constexpr bool operator==(const ValueId&) const = default;
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
  /// Of an operand that nobody declared an output: launches around which its bytes were compared,
  /// and in how many they changed. 0: declared, or not compared.
  uint32_t looks = 0;
  uint32_t changes = 0;
  /// Of the indices an embedding looks up, or of the labels of a loss.
  Padding padding = Padding::kNone;
  int64_t pad_index = 0;                 ///< what stands for "nothing here"
  uint64_t pad_count = 0;                ///< elements that are pad_index, or kNotCounted
  std::span<const uint64_t> pad_rows{};  ///< the same of each row of a batch, or nothing
  /// Elements whose bits are all those of CONVTRACE_POISON, of an op's inputs and outputs; on a
  /// GPU those among the samples.
  uint64_t poisoned = 0;
};
inline constexpr size_t kMaxDims = 16;
inline constexpr size_t kMaxRanges = 256;
inline constexpr size_t kMaxPadRows = 4096;
/// A device does not count padding. Its zeros and negative elements are counted among the
/// statistics.
inline constexpr uint64_t kNotCounted = UINT64_MAX;

struct Alloc {
  EventHeader header;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;
  MemorySource source = MemorySource::kDriver;
  Device device;
  uint64_t stream = 0;
  StackId stack;
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
};

/// A change of device memory by other means than a kernel.
struct Copy {
  /// kDiscard: what is there means nothing any more.
  enum class Kind : uint8_t { kCopy = 0, kSet = 1, kDiscard = 2 };
  EventHeader header;
  Kind kind = Kind::kCopy;
  uint64_t destination = 0;
  uint64_t source = 0;  ///< kSet: the value
  uint64_t bytes = 0;
  uint64_t stream = 0;
};
template <>
inline constexpr size_t kEnumCount<Copy::Kind> = 3;

/// A module was entered or left.
struct Scope {
  EventHeader header;
  Place place;
  bool enter = true;
};

/// A training step begins.
struct Step {
  EventHeader header;
  uint32_t index = 0;
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
};

/// Of the Diagnostic behind which allocations and frees of CPU tensors are not recorded.
inline constexpr const char* kCpuMemorySite = "cpu memory";

/// Something convtrace noticed about itself or its surroundings.
struct Diagnostic {
  EventHeader header;
  Level level = Level::kWarning;
  std::string_view site;
  std::string_view message;
};

/// Records that are not in the trace.
struct Loss {
  EventHeader header;
  LossReason reason = LossReason::kQueueFull;
  uint64_t count = 0;
};

/// convtrace's own cost since the previous Cost.
struct Cost {
  EventHeader header;
  uint64_t host_ns = 0;
  uint64_t device_ns = 0;
  uint64_t bytes = 0;  ///< written to the file
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
};

/// A tagged op (torch.library, autograd.Function) and the memory that it took and gave: one event
/// for its begin, each tensor and its end, one after another on its thread.
struct Op {
  EventHeader header;
  Place place;
  OpMoment moment = OpMoment::kBegin;
  bool declares_alias = false;  ///< end: it says that outputs may share memory with inputs
  bool has_schema = false;      ///< end: a torch.library op, whose schema declares aliasing
  bool written = false;         ///< input: declared, or known to the framework, as written in place
  bool frees_reported = false;  ///< of its memory: the allocator tells what it frees
  bool borrows = false;  ///< output: its storage cannot be resized, as one in another's memory
  StringId op;
  StringId slot;  ///< of a tensor, as in TensorStats
  Device device;
  uint64_t address = 0;
  uint64_t bytes = 0;          ///< from the first to the last byte of the elements
  ValueId value;               ///< death: the storage alone
  uint64_t storage_bytes = 0;  ///< from address - value.offset on
  StackId stack;  ///< input: where its memory was allocated; stack, death: where that happened
};

/// What decides results and is no tensor, from this event on: a module's class and its settings, a
/// setting of an optimizer, the state of a random generator. Recorded when first seen and when it
/// changed.
struct Fact {
  EventHeader header;
  StringId scope;  ///< qualified module name, or none: of the program
  StringId name;   ///< "class", "attributes", "optimizer.0.0.lr", "rng.torch", ...
  std::string_view value;
};

/// Facts that say where code stands. They decide nothing: a line above them moves them.
inline bool is_location(std::string_view fact) { return fact == "forward" || fact == "call"; }

/// The order of alternatives is the stored event kind: append only.
using Event = std::variant<Launch, TensorStats, Alloc, Free, Copy, Scope, Step, Finding, Diagnostic,
                           Loss, Cost, Sync, Op, Fact>;

/// @return the value of `record` in JSON for each alternative of Event.
constexpr std::string_view event_name(size_t index) {
  constexpr std::string_view kNames[] = {"launch", "stats", "alloc",   "free",       "copy",
                                         "scope",  "step",  "finding", "diagnostic", "loss",
                                         "cost",   "sync",  "op",      "fact"};
  static_assert(std::variant_size_v<Event> == std::size(kNames));
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

/// std::visit, but without the jump through a table that libstdc++ makes of more than eleven
/// alternatives: what is the same for all of them, as in header_of(), becomes no jump at all.
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

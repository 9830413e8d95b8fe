#pragma once
/// @file event_enums.h
/// The enumerations of the fields in events.h.

#include "format/base/named_enum.h"

namespace convtrace::format {

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
  X(kEvaluation, 7, "evaluation")       \
  X(kTuning, 8, "tuning")

#define CONVTRACE_CAPTURES(X) \
  X(kHash, 0, "hash")         \
  X(kStats, 1, "stats")       \
  X(kSnapshot, 2, "snapshot")

/// `tensor`: exactly the tensor's bytes are known. `block`: only the whole allocation is, which may
/// include padding.
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

/// The declaration that makes an index in an integer tensor stand for padding; none: it has no such
/// index.
#define CONVTRACE_PADDINGS(X)   \
  X(kNone, 0, "none")           \
  X(kEmbedding, 1, "embedding") \
  X(kLabels, 2, "labels")

/// Why a launch has no values. kSampled: it has some.
#define CONVTRACE_SAMPLE_OUTCOMES(X)                         \
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

#define CONVTRACE_FINDING_KINDS(X)                    \
  X(kFreedUnderOutput, 0, "freed-under-output")       \
  X(kUseAfterFree, 1, "use-after-free")               \
  X(kStaleRead, 2, "stale-read")                      \
  X(kCrossStreamReuse, 3, "cross-stream-reuse")       \
  X(kOutputAliasesInput, 4, "output-aliases-input")   \
  X(kInputMutated, 5, "input-mutated")                \
  X(kAutotuneMutation, 6, "autotune-mutation")        \
  X(kNeverWritten, 7, "never-written")                \
  X(kAliasPatternDiffers, 8, "alias-pattern-differs") \
  X(kUsedBeforeWait, 9, "used-before-wait")           \
  X(kReceiveOverlaps, 10, "receive-overlaps")         \
  X(kOverwritten, 11, "overwritten")

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
  X(kGraphMemory, 14, "copies and allocations inside a graph")       \
  X(kCollectiveMissed, 15, "collective not read in time")            \
  X(kObserverFailed, 16, "observer failed, see CT-1301")

/// Calls that order work on the GPU beyond its place in a stream: they create or destroy an event
/// or a stream, or make a stream, or the host, wait for work of another. From kCaptureBegin to
/// kCaptureEnd a stream records work instead of running it.
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

/// The moment of a tagged op's call that an Op event describes: its begin, an input or output, its
/// end; the place of the call, if an output shares memory with an input; later, the death of a
/// storage of an input or output. In flight: a collective that the program has to wait for has begun
/// to use a tensor; awaited: the program has waited for it.
#define CONVTRACE_OP_MOMENTS(X)        \
  X(kBegin, 0, "begin")                \
  X(kInput, 1, "input")                \
  X(kOutput, 2, "output")              \
  X(kEnd, 3, "end")                    \
  X(kStack, 4, "stack")                \
  X(kStorageDeath, 5, "storage-death") \
  X(kInFlight, 6, "in-flight")         \
  X(kAwaited, 7, "awaited")

/// The effect of a Copy on memory. kDiscard: the contents are undefined from now on.
#define CONVTRACE_COPY_KINDS(X) \
  X(kCopy, 0, "copy")           \
  X(kSet, 1, "set")             \
  X(kDiscard, 2, "discard")

CONVTRACE_NAMED_ENUM(Phase, CONVTRACE_PHASES)
CONVTRACE_NAMED_ENUM(Capture, CONVTRACE_CAPTURES)
CONVTRACE_NAMED_ENUM(Extent, CONVTRACE_EXTENTS)
CONVTRACE_NAMED_ENUM(MemorySource, CONVTRACE_MEMORY_SOURCES)
CONVTRACE_NAMED_ENUM(Confidence, CONVTRACE_CONFIDENCES)
CONVTRACE_NAMED_ENUM(Padding, CONVTRACE_PADDINGS)
CONVTRACE_NAMED_ENUM(SampleOutcome, CONVTRACE_SAMPLE_OUTCOMES)
CONVTRACE_NAMED_ENUM(FindingKind, CONVTRACE_FINDING_KINDS)
CONVTRACE_NAMED_ENUM(LossReason, CONVTRACE_LOSS_REASONS)
CONVTRACE_NAMED_ENUM(SyncKind, CONVTRACE_SYNC_KINDS)
CONVTRACE_NAMED_ENUM(OpMoment, CONVTRACE_OP_MOMENTS)
CONVTRACE_NAMED_ENUM(CopyKind, CONVTRACE_COPY_KINDS)

}  // namespace convtrace::format

/// @file hooks_v1.h
/// The table of functions through which the preload library (libconvtrace.so) calls the engine
/// (libconvtrace-core.so). It is the only interface between the two.
///
/// Every child process loads the preload library, which does nothing by itself: its wrappers call
/// through this table after the engine has published one, and call the real function until then.
///
/// Threads:  published once, by an atomic store; entries never change afterwards and may be called
///           from any thread.
/// Errors:   entries never throw and never block.
/// Layout:   append only; `bytes` says how much the engine knows. Plain C, no CUDA headers: handles
///           are void*, CUresult is int, CUdeviceptr is uint64_t.
#ifndef CONVTRACE_CUPTI_HOOKS_V1_H
#define CONVTRACE_CUPTI_HOOKS_V1_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The driver's launch functions. A hook gets all parameters of the call in order, in the struct
/// that CUPTI hands to callbacks (cuLaunchKernel_params, ...).
enum convtrace_launch_call {
  CONVTRACE_LAUNCH_KERNEL = 0,
  CONVTRACE_LAUNCH_KERNEL_EX = 1,
  CONVTRACE_LAUNCH_COOPERATIVE = 2,
  CONVTRACE_LAUNCH_GRAPH = 3,
  CONVTRACE_LAUNCH_MULTI_DEVICE = 4 /* cuLaunchCooperativeKernelMultiDevice */
};

/// Makes the driver's launch call with the parameters of that struct. @return its CUresult.
typedef int (*convtrace_launch_fn)(const void* params);

/// Calls that concern graphs, and streams that are captured into one. The comment beside each kind
/// names the arguments `exec`, `object` and `params`, in this order; the others are null.
enum convtrace_graph_call {
  CONVTRACE_GRAPH_INSTANTIATED = 0, /* CUgraphExec, CUgraph */
  CONVTRACE_GRAPH_UPDATED = 1,      /* CUgraphExec, CUgraph */
  CONVTRACE_GRAPH_KERNEL_SET = 2,   /* CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS* */
  CONVTRACE_GRAPH_NODE_SET = 3,     /* CUgraphExec, CUgraphNode, const CUgraphNodeParams* */
  CONVTRACE_GRAPH_NODE_ENABLED = 4, /* CUgraphExec, CUgraphNode */
  CONVTRACE_GRAPH_NODE_DISABLED = 5,
  CONVTRACE_GRAPH_DESTROYED = 6, /* CUgraphExec; reported before the driver's call */
  CONVTRACE_CAPTURE_BEGUN = 7,   /* no CUgraphExec, CUstream */
  CONVTRACE_CAPTURE_ENDED = 8,   /* no CUgraphExec, CUstream; also after a call that failed */
  CONVTRACE_GRAPH_CHILD_SET = 9, /* CUgraphExec, CUgraphNode, CUgraph as parameters */
  CONVTRACE_GRAPH_SOURCE_DESTROYED = 10 /* no CUgraphExec, CUgraph; reported before the call */
};

typedef int (*convtrace_cuMemFree_fn)(uint64_t address);

/// Calls that concern the driver's memory, reported only with CONVTRACE_POISON or
/// CONVTRACE_QUARANTINE.
enum convtrace_memory_call {
  CONVTRACE_MEMORY_GIVEN = 0,          /* address, bytes: cuMemAlloc succeeded */
  CONVTRACE_MEMORY_GIVEN_IN_ORDER = 1, /* address, bytes, stream: a stream-ordered allocation */
  CONVTRACE_MEMORY_TAKEN_IN_ORDER = 2, /* address, stream; reported before the driver's call */
  CONVTRACE_MEMORY_SHARED = 3, /* address; reported before another process may get a handle of it */
  CONVTRACE_MEMORY_SHORT = 4,  /* an allocation failed for lack of memory; answer 1: try it again */
  CONVTRACE_MEMORY_WANTED = 5, /* before a call that reads the free memory or ends contexts */
  CONVTRACE_MEMORY_CAPTURE = 6, /* reported before a stream's capture begins */
  CONVTRACE_MEMORY_GREW = 7     /* memory of another kind was given */
};

/// Kinds of NCCL's functions. Collectives and transfers come first; the comment beside each of the
/// others names the members of convtrace_nccl_call that are set for it.
enum convtrace_nccl_kind {
  CONVTRACE_NCCL_ALL_REDUCE = 0,
  CONVTRACE_NCCL_BROADCAST = 1,
  CONVTRACE_NCCL_REDUCE = 2,
  CONVTRACE_NCCL_ALL_GATHER = 3,
  CONVTRACE_NCCL_REDUCE_SCATTER = 4,
  CONVTRACE_NCCL_ALL_TO_ALL = 5,
  CONVTRACE_NCCL_GATHER = 6,
  CONVTRACE_NCCL_SCATTER = 7,
  CONVTRACE_NCCL_SEND = 8,
  CONVTRACE_NCCL_RECV = 9,
  CONVTRACE_NCCL_GROUP_BEGINS = 16,
  CONVTRACE_NCCL_GROUP_ENDS = 17,
  CONVTRACE_NCCL_GROUP_DROPPED = 18, /* it ends without doing anything */
  CONVTRACE_NCCL_COMM_MADE = 24,     /* made, size, rank, id, id_bytes */
  CONVTRACE_NCCL_COMMS_MADE = 25,    /* made[size], devices[size] or null */
  CONVTRACE_NCCL_COMM_SPLIT = 26,    /* comm, made, color: below 0 without a communicator */
  CONVTRACE_NCCL_COMM_SHRUNK = 27,   /* comm, made */
  CONVTRACE_NCCL_COMM_ENDS = 28      /* comm */
};

/// Functions of the copy of NCCL that is called, without wrappers; null where it lacks one.
struct convtrace_nccl_library {
  int (*comm_count)(const void* comm, int* count);
  int (*comm_user_rank)(const void* comm, int* rank);
};

/// A call of NCCL, with its arguments by meaning. Counts, types and reductions are nccl.h's.
struct convtrace_nccl_call {
  uint32_t bytes; /* sizeof(struct convtrace_nccl_call) as the preload library was built */
  int kind;       /* enum convtrace_nccl_kind */
  const struct convtrace_nccl_library* library;
  const void* send; /* null: this function sends nothing */
  void* receive;    /* null: it receives nothing */
  uint64_t count;   /* as the function has it: of one rank's part, where there are parts */
  void* comm;
  void* stream;
  int type;      /* ncclDataType_t */
  int reduction; /* ncclRedOp_t */
  int peer;      /* the root, the destination or the source */
  int size, rank, color;
  void* const* made;
  const int* devices;
  const void* id; /* bytes that are equal for all members, as an ncclUniqueId */
  uint64_t id_bytes;
};

/// `per_thread` is 1 for the _ptsz variant of an entry point: stream 0 then means the per-thread
/// default stream.
struct convtrace_hooks_v1 {
  uint32_t bytes; /* sizeof(struct convtrace_hooks_v1) as the engine was built */

  /* c10::reportMemoryUsageToProfiler, any of its spellings. `bytes` < 0 is a free. `device`: low
   * byte is the type. */
  void (*memory_report)(void* pointer, int64_t bytes, uint64_t device);

  void* ended[4]; /* entries of older engines: null */

  /* A call of the kind `call` (enum convtrace_graph_call) succeeded. */
  void (*graph_call)(int call, void* exec, void* object, const void* params);

  void* ended_too;

  /* cuMemFree: the entry calls the real function now or later, once. */
  int (*free_memory)(convtrace_cuMemFree_fn real, uint64_t address);
  /* `call` is one of enum convtrace_memory_call; `stream` is the one that is meant. */
  int (*memory_call)(int call, uint64_t address, uint64_t bytes, void* stream);

  /* Somebody else wants CUPTI's one subscription: the engine ends its own. */
  void (*give_cupti_away)(void);

  /* One of enum convtrace_launch_call. `real` is called exactly once, whatever the engine does. */
  int (*launch)(int call, int per_thread, const void* params, convtrace_launch_fn real);

  /* A function of NCCL is about to be called, and has returned `result` (ncclResult_t): each call of
   * the first is followed by one of the second, on the same thread. */
  void (*nccl_begins)(const struct convtrace_nccl_call* call);
  void (*nccl_ended)(const struct convtrace_nccl_call* call, int result);
};

/// Exported by libconvtrace.so as the data symbol `convtrace_hooks_v1` (an atomic pointer); the
/// engine finds it with dlsym(RTLD_DEFAULT, "convtrace_hooks_v1") and publishes its table with a
/// compare-and-swap from null.
#define CONVTRACE_HOOKS_SYMBOL "convtrace_hooks_v1"

/// Set by the stub at process start: 0 with CONVTRACE_CPU_ALLOC=off, else 1, and by the engine to 0
/// when PyTorch's allocator need not report CPU tensors any more. Exported as the data symbol
/// `convtrace_cpu_alloc_v1`, an atomic int.
#define CONVTRACE_CPU_ALLOC_SYMBOL "convtrace_cpu_alloc_v1"

/// Set by the stub at process start to 1 or 0: whether memory of CPU tensors is held when it is
/// freed (CONVTRACE_QUARANTINE). Exported as the data symbol `convtrace_quarantine_v1`, an int.
#define CONVTRACE_QUARANTINE_SYMBOL "convtrace_quarantine_v1"

/// Set by the stub at process start to the folder the process is in, as text that ends with 0;
/// empty if it has none. Exported as the data symbol `convtrace_start_folder_v1`, an array of char.
#define CONVTRACE_START_FOLDER_SYMBOL "convtrace_start_folder_v1"

/// Set to 1 by the engine when there is a trace, or when a message has explained why there is none.
/// Exported as the data symbol `convtrace_explained_v1`, an int; read when the process ends.
#define CONVTRACE_EXPLAINED_SYMBOL "convtrace_explained_v1"

#ifdef __cplusplus
}
#endif
#endif

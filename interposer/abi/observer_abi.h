/// @file observer_abi.h
/// The C interface between the engine and the Python observer (interposer/observer/): a few
/// functions, and one byte stream of messages, so that a hook makes one call however much it
/// reports.
///
/// Place:    implemented by interposer/core/observer/observer_port.cpp; used by
///           interposer/observer/convtrace_observer/base/engine.py through ctypes, which packs the
///           structs below (tests/python checks that both sides agree on every offset).
/// Threads:  any thread, whoever holds the GIL. A submit is processed completely on the calling
///           thread before it returns.
/// Errors:   nothing is thrown or printed; a malformed batch is dropped and counted.
/// Layout:   little-endian, natural alignment, every message starts at a multiple of 8 bytes and
///           begins with convtrace_message. Append only.
#ifndef CONVTRACE_INTERPOSER_ENGINE_OBSERVER_ABI_H
#define CONVTRACE_INTERPOSER_ENGINE_OBSERVER_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONVTRACE_OBSERVER_ABI 1

enum convtrace_message_kind {
  CONVTRACE_MSG_TENSOR = 1,
  CONVTRACE_MSG_SCOPE = 2,
  CONVTRACE_MSG_STEP = 3,
  CONVTRACE_MSG_OP = 4,
  CONVTRACE_MSG_OP_STACK = 5,
  CONVTRACE_MSG_STORAGE_DEAD = 6,
  CONVTRACE_MSG_FACT = 7,
  CONVTRACE_MSG_LOSS = 8,
  CONVTRACE_MSG_DIAGNOSTIC = 9,
  CONVTRACE_MSG_OP_BEGIN = 10,
  CONVTRACE_MSG_TENSOR_STACK = 11,
  CONVTRACE_MSG_EVENT_FACT = 12,
  CONVTRACE_MSG_SPENT = 13,
  CONVTRACE_MSG_COLLECTIVE = 14,
  CONVTRACE_MSG_COLLECTIVE_VALUES = 15,
  CONVTRACE_MSG_KERNEL = 16,
  CONVTRACE_MSG_FLIGHT = 17,
};

struct convtrace_message {
  uint16_t kind;
  uint16_t reserved;
  uint32_t bytes; /* size of the whole message, a multiple of 8 */
};

/// Requests the statistics or the hash of one tensor now. Enumerations have the values of
/// format/model/events.h and dtype.h; names are ids from convtrace_intern. A CPU tensor is read
/// before the call returns; for a CUDA tensor the work is queued on `stream` behind its present
/// work.
struct convtrace_tensor {
  struct convtrace_message message;
  uint8_t phase, capture, device_type, device_index;
  uint8_t dtype, rank, extent;
  uint8_t padding; /* Padding: whether elements equal to pad_index are padding */
  uint32_t scope, call, slot, op;
  uint32_t version; /* tensor._version */
  int32_t pad_index;
  uint64_t data;    /* address of the first element */
  uint64_t storage; /* identity of the storage: assigned by the observer, unique in the process */
  uint64_t storage_base;
  uint64_t storage_bytes;
  uint64_t stream; /* CUDA: torch's current stream of that device, as a raw handle */
  /* int64_t shape[rank]; int64_t strides[rank] (in elements) */
};

struct convtrace_scope {
  struct convtrace_message message;
  uint8_t phase, enter;
  uint8_t reserved[6];
  uint32_t scope, call;
};

struct convtrace_step {
  struct convtrace_message message;
  uint32_t index, reserved;
};

/// One tensor that a tagged op took or returned.
struct convtrace_op_operand {
  uint32_t slot;
  uint8_t is_output, device_type, device_index;
  uint8_t written; /* 1: an input that is written, as the op declares or the framework knows */
  uint64_t data;
  uint64_t bytes; /* from the first to the last byte of the elements */
  uint64_t storage, storage_base, storage_bytes;
  uint32_t version;
  uint8_t borrows; /* 1: an output whose storage cannot be resized: perhaps not its own */
  uint8_t reserved2[3];
};

/// A tagged custom op has returned. Sent after the TENSOR messages of its outputs: see
/// CONVTRACE_SUBMIT_WATCH. OP_BEGIN: the op is about to run; has no operands.
struct convtrace_op {
  struct convtrace_message message;
  uint8_t phase;
  uint8_t declared_alias; /* 1: the op declares that outputs may share memory with inputs */
  uint8_t schema_known;   /* 1: a torch.library op, whose schema declares aliasing */
  uint8_t reserved[5];
  uint32_t scope, call, op, operand_count;
  /* struct convtrace_op_operand operands[operand_count] */
};

/// Python frames, innermost first, each "function (file:line)". OP_STACK: of the op of this
/// thread's last OP message; sent when submit answered CONVTRACE_SUBMIT_WATCH. STORAGE_DEAD: of the
/// place where a watched storage is about to free its memory (may be none). TENSOR_STACK: of the
/// place where the TENSOR messages behind it in the batch were made; sent only with
/// CONVTRACE_STACKS=all.
struct convtrace_frames {
  struct convtrace_message message;
  uint64_t storage; /* STORAGE_DEAD only */
  uint32_t frame_count, reserved;
  /* uint32_t frames[frame_count], padded to 8 bytes */
};

/// A fact for META: "version.torch", "switch.deterministic_algorithms", ...
struct convtrace_fact {
  struct convtrace_message message;
  uint32_t name, value;
};

/// A fact of the running program that holds from this step on; becomes an event. The value is not
/// interned, because most values occur once.
struct convtrace_event_fact {
  struct convtrace_message message;
  uint32_t scope, name, value_bytes, reserved;
  /* char value[value_bytes], padded to 8 bytes */
};

struct convtrace_loss {
  struct convtrace_message message;
  uint8_t reason; /* LossReason */
  uint8_t reserved[7];
  uint64_t count;
};

/// The time that the observer has spent outside of the engine since its last such message.
struct convtrace_spent {
  struct convtrace_message message;
  uint64_t ns;
};

/// A collective, or a transfer between two ranks, is called: the fields of Collective in
/// format/model/collective.h. The TENSOR messages behind it in the batch are those that it sends.
struct convtrace_collective {
  struct convtrace_message message;
  uint8_t phase, dtype, device_type, device_index;
  uint32_t scope, call, op, group, members, reduction, group_rank, group_size, peer;
  uint64_t stream, sent, received, number, id, tag;
};

/// The TENSOR messages behind it in the batch are those of the collective `id`, which was called in
/// `step`.
struct convtrace_collective_values {
  struct convtrace_message message;
  uint64_t id;
  uint32_t step, reserved;
};

/// A collective that the program has to wait for was given a tensor, or that program has waited.
struct convtrace_flight {
  struct convtrace_message message;
  uint8_t phase, device_type, device_index;
  uint8_t awaited; /* 0: it begins */
  uint8_t written; /* begins: the call writes it; awaited: the program did meanwhile */
  uint8_t reserved[3];
  uint32_t scope, call, op, slot, version;
  uint32_t line; /* the program's line: "function (file:line)"; 0: none */
  uint64_t data, bytes, storage, storage_base, storage_bytes; /* as in convtrace_op_operand */
};

struct convtrace_kernel_param {
  uint32_t slot;      /* slot of its values */
  uint8_t dtype;      /* DType of the memory that a pointer points to */
  uint8_t is_pointer; /* 0: a number, or an unknown type */
  uint8_t reserved[2];
};

/// A compiler has loaded a kernel, whose CUfunction is `function`, and knows its parameters. `name`
/// is the one that it has for the driver.
struct convtrace_kernel {
  struct convtrace_message message;
  uint64_t function;
  uint32_t name, param_count;
  /* struct convtrace_kernel_param params[param_count] */
};

struct convtrace_diagnostic {
  struct convtrace_message message;
  uint8_t level;
  uint8_t reserved[7];
  uint32_t site, text;
};

/// Answer of convtrace_submit: flags.
enum convtrace_submit_flags {
  CONVTRACE_SUBMIT_CAPTURE = 1, /* values of the current step are wanted */
  CONVTRACE_SUBMIT_WATCH = 2, /* an OP of this batch made a watch: report the death of the storages
                                 of its operands, and send its OP_STACK */
  CONVTRACE_SUBMIT_OFF = 4,   /* tracing is over in this process: remove the hooks */
};

/// Position of the calling native thread in the program. The observer writes scope, call and phase
/// without a call, into memory of the engine that lives as long as the process; the engine reads
/// them on the same thread at launches and allocations.
struct convtrace_thread_scope {
  uint32_t scope; /* string id; 0 none */
  uint32_t call;
  uint32_t phase;
  uint32_t reserved;
  uint64_t nccl_calls; /* collectives of NCCL that the engine recorded on this thread: the engine
                          writes, the observer reads */
};

/// Starts the engine in this process if it is not running. (In a program that uses CUDA the driver
/// has started it with InitializeInjection.)
/// @return CONVTRACE_OBSERVER_ABI, or 0 when this process is not traced: then the observer installs
/// no hook.
uint32_t convtrace_start(void);

/// @return the id of a UTF-8 text; 0 when the table is full.
uint32_t convtrace_intern(const char* text, uint32_t bytes);

/// Handles `bytes` of messages. @return flags above.
uint32_t convtrace_submit(const void* messages, uint32_t bytes);

/// @return the slot of this native thread, never null.
struct convtrace_thread_scope* convtrace_scope_slot(void);

/// Reads the value of a setting ("CONVTRACE_MODE") that is in effect, from environment, file or
/// default.
/// @return bytes needed without the terminating zero; at most `capacity` bytes are written,
/// zero-terminated.
uint32_t convtrace_setting(const char* name, char* buffer, uint32_t capacity);

/// Closes the trace, for a process that is about to end without exit handlers. Waits at most two
/// seconds for the disk. Nothing is traced afterwards.
void convtrace_finish(void);

/// Makes the functions of the observer that are written in C++ (interposer/core/python/hot_path.h).
/// For threads that hold Python's GIL: call it through ctypes.PyDLL.
/// @param config      a dictionary, see convtrace_observer/base/native.py
/// @param submit      convtrace_submit, or what tests have in its place; null for the former
/// @param scope_slot  likewise
/// @return a new reference to a dictionary of functions; null if they cannot be made here, perhaps
/// with Python's error set.
void* convtrace_python(void* config, uint32_t (*submit)(const void*, uint32_t),
                       struct convtrace_thread_scope* (*scope_slot)(void));

#ifdef __cplusplus
}
#endif
#endif

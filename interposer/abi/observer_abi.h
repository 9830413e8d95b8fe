/// @file observer_abi.h
/// The C interface between the engine and the Python observer (interposer/observer/): a few
/// functions and one byte stream of messages, so that a hook costs one call whatever it has to say.
///
/// Place:    implemented by engine/observer_port.cpp; used by
///           interposer/observer/convtrace_observer/base/engine.py through ctypes, which packs the
///           structs below (tests/python checks that both sides agree on every offset).
/// Threads:  every function may be called from any thread, with or without the GIL held by others;
///           a submit is handled completely, on the calling thread, before it returns.
/// Errors:   nothing is thrown and nothing printed; a malformed batch is dropped and counted.
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
};

struct convtrace_message {
  uint16_t kind;
  uint16_t reserved;
  uint32_t bytes; /* of the whole message, a multiple of 8 */
};

/// Ask for the statistics or the hash of one tensor, now. Enumerations have the values of
/// format/model/events.h and dtype.h; names are ids from convtrace_intern. A CPU tensor is read
/// before the call returns; for a CUDA tensor the work is queued behind what `stream` holds now.
struct convtrace_tensor {
  struct convtrace_message message;
  uint8_t phase, capture, device_type, device_index;
  uint8_t dtype, rank, extent;
  uint8_t padding; /* Padding: whether pad_index stands for "nothing here" */
  uint32_t scope, call, slot, op;
  uint32_t version; /* tensor._version */
  int32_t pad_index;
  uint64_t data;    /* address of the first element */
  uint64_t storage; /* identity of the storage: given by the observer, never reused in a process */
  uint64_t storage_base;
  uint64_t storage_bytes;
  uint64_t stream; /* CUDA: torch's current raw stream of that device */
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

/// One tensor that a tagged op took or gave.
struct convtrace_op_operand {
  uint32_t slot;
  uint8_t is_output, device_type, device_index;
  uint8_t written; /* 1: an input that the op declares, or the framework knows, as written */
  uint64_t data;
  uint64_t
      bytes; /* from the first to the last byte of the elements, so that overlap can be judged */
  uint64_t storage, storage_base, storage_bytes;
  uint32_t version;
  uint8_t borrows; /* 1: an output whose storage cannot be resized: it may be another's memory */
  uint8_t reserved2[3];
};

/// A tagged custom op returned. Sent after its output TENSOR messages: see CONVTRACE_SUBMIT_WATCH.
/// OP_BEGIN: it is about to run; without operands.
struct convtrace_op {
  struct convtrace_message message;
  uint8_t phase;
  uint8_t declared_alias; /* 1: the op says that outputs may share memory with inputs */
  uint8_t schema_known;   /* 1: a torch.library op, whose schema declares aliasing */
  uint8_t reserved[5];
  uint32_t scope, call, op, operand_count;
  /* struct convtrace_op_operand operands[operand_count] */
};

/// Python frames of the op of this thread's last OP message, innermost first, each "function
/// (file:line)". Sent when submit answered CONVTRACE_SUBMIT_WATCH. STORAGE_DEAD: a watched storage
/// is about to free its memory; frames of where that happens (may be none). TENSOR_STACK: of where
/// the TENSORs behind it in the batch are met; sent with CONVTRACE_STACKS=all alone.
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

/// A fact of the running program, from this step on: an event of its own. The value is no interned
/// text, because most values come once.
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

/// What the observer itself took of the program's time since it said so last, outside of the
/// engine.
struct convtrace_spent {
  struct convtrace_message message;
  uint64_t ns;
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

/// Where the calling native thread is in the program. Written by the observer without a call
/// (memory of the engine that lives as long as the process), read by the engine on the same thread
/// at launches and allocations.
struct convtrace_thread_scope {
  uint32_t scope; /* string id; 0 none */
  uint32_t call;
  uint32_t phase;
  uint32_t reserved;
};

/// Starts the engine in this process if it is not running (CPU-only programs; InitializeInjection
/// does it when the driver starts first).
/// @return CONVTRACE_OBSERVER_ABI, or 0 when tracing is off here: the observer then installs no
/// hook.
uint32_t convtrace_start(void);

/// @return the id of a UTF-8 text; 0 when the table is full.
uint32_t convtrace_intern(const char* text, uint32_t bytes);

/// Handles `bytes` of messages. @return flags above.
uint32_t convtrace_submit(const void* messages, uint32_t bytes);

/// @return this native thread's slot, never null.
struct convtrace_thread_scope* convtrace_scope_slot(void);

/// Effective value of a setting ("CONVTRACE_MODE"), after file and defaults.
/// @return bytes needed without the terminating zero; at most `capacity` bytes are written,
/// zero-terminated.
uint32_t convtrace_setting(const char* name, char* buffer, uint32_t capacity);

/// Closes the trace: for a process that is about to end without running exit handlers. Waits up to
/// two seconds for the disk. Tracing is over then.
void convtrace_finish(void);

#ifdef __cplusplus
}
#endif
#endif

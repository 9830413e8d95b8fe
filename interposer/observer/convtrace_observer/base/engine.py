"""The C interface of the engine (interposer/abi/observer_abi.h): functions, enumerations and
messages. tests/python/abi_test.py compares every constant and offset here with that header.

A hook packs its messages into its thread's Batch and makes one call. Each text is passed once and
is a number from then on.
"""
import ctypes
import struct

ABI = 1

# enum convtrace_message_kind
TENSOR, SCOPE, STEP, OP, OP_STACK, STORAGE_DEAD, FACT, LOSS, DIAGNOSTIC, OP_BEGIN, TENSOR_STACK = range(1, 12)
EVENT_FACT, SPENT, COLLECTIVE, COLLECTIVE_VALUES, KERNEL, FLIGHT = range(12, 18)

# format/model/events.h
FORWARD, DATA, LOSS_PHASE, BACKWARD, OPTIMIZER, RECOMPUTE, COMMUNICATION, EVALUATION, TUNING = range(9)
HASH, STATS = 0, 1
NO_PADDING = (0, 0)
EMBEDDING, LABELS = 1, 2
WARNING, INFO = 1, 2
LOST_TENSOR_KIND, LOST_STREAM_UNSAFE, LOST_COLLECTIVE_MISSED, LOST_OBSERVER_FAILED = 5, 6, 15, 16

# enum convtrace_submit_flags
SUBMIT_CAPTURE, SUBMIT_WATCH, SUBMIT_OFF = 1, 2, 4

# Every message: kind, reserved, bytes; then the fields in the order of the header. `x` are reserved
# bytes; where the header has two reserved words in a row of fields they are packed as zeros.
TENSOR_MESSAGE = struct.Struct("<HHI4B4B4IIi5Q")
SCOPE_MESSAGE = struct.Struct("<HHI2B6x2I")
STEP_MESSAGE = struct.Struct("<HHII4x")
OP_MESSAGE = struct.Struct("<HHI3B5x4I")
OP_OPERAND = struct.Struct("<I4B5QIB3x")
FRAMES_MESSAGE = struct.Struct("<HHIQI4x")
FACT_MESSAGE = struct.Struct("<HHI2I")
EVENT_FACT_MESSAGE = struct.Struct("<HHI3I4x")
LOSS_MESSAGE = struct.Struct("<HHIB7xQ")
SPENT_MESSAGE = struct.Struct("<HHIQ")
COLLECTIVE_MESSAGE = struct.Struct("<HHI4B9I6Q")
COLLECTIVE_VALUES_MESSAGE = struct.Struct("<HHIQI4x")
FLIGHT_MESSAGE = struct.Struct("<HHI5B3x6I5Q")
KERNEL_MESSAGE = struct.Struct("<HHIQ2I")
KERNEL_PARAM = struct.Struct("<I2B2x")
DIAGNOSTIC_MESSAGE = struct.Struct("<HHIB7x2I")

MAX_RANK = 16
_DIMS = [struct.Struct("<%dq" % (2 * rank)) for rank in range(MAX_RANK + 1)]
_MAX_FRAMES = 128
_MAX_FACT_BYTES = 8192
_EXTENT_TENSOR = 0


class Engine:
    """One loaded engine. `library` has the functions of the header: a ctypes library, or a test's
    own object."""

    def __init__(self, library):
        self._library = library
        self._ids = {}
        self.submit = library.convtrace_submit

    @classmethod
    def load(cls, path):
        library = ctypes.CDLL(path)
        u32 = ctypes.c_uint32
        for name, result, arguments in (
            ("start", u32, []),
            ("intern", u32, [ctypes.c_char_p, u32]),
            ("submit", u32, [ctypes.c_void_p, u32]),
            ("scope_slot", ctypes.c_void_p, []),
            ("setting", u32, [ctypes.c_char_p, ctypes.c_char_p, u32]),
            ("finish", None, []),
        ):
            function = getattr(library, "convtrace_" + name)
            function.restype, function.argtypes = result, arguments
        return cls(library)

    def make_functions(self, config):
        """@return the functions of base/native.py in C++; raises if this process cannot have them."""
        make = ctypes.PyDLL(self._library._name).convtrace_python
        make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p]
        return make(config, *getattr(self._library, "stand_ins", (None, None)))

    def start(self):
        return self._library.convtrace_start() == ABI

    def intern(self, text):
        """@return the id of a text; 0 when the engine's table is full."""
        number = self._ids.get(text)
        if number is None:
            data = text.encode("utf-8", "replace")
            number = self._ids[text] = self._library.convtrace_intern(data, len(data))
        return number

    def forget_texts(self):
        """Forgets all ids after a fork: the child's engine may start with an empty table."""
        self._ids.clear()

    def setting(self, name):
        buffer = ctypes.create_string_buffer(4096)
        self._library.convtrace_setting(name.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def finish(self):
        """Closes the trace, for a process whose exit handlers will not run."""
        self._library.convtrace_finish()

    def scope_slot(self):
        """@return this native thread's slot as 64-bit words: scope | call << 32; phase; the engine's own count of the
        collectives of NCCL that it has recorded on this thread."""
        address = self._library.convtrace_scope_slot()
        return memoryview((ctypes.c_uint64 * 3).from_address(address)).cast("B").cast("Q")


class Batch:
    """Messages of one hook call, each complete: code of the program that runs between two of them on this thread (a
    finalizer, a handler of a signal) may pack and send as well. One per thread."""

    __slots__ = ("_engine", "_submit", "messages")

    def __init__(self, engine):
        self._engine = engine
        self._submit = engine.submit
        self.messages = []

    def submit(self):
        """Sends everything packed in one call. @return the flags of the engine's answer."""
        fresh = []  # made before the exchange, during which nothing is allocated and nothing called
        messages, self.messages = self.messages, fresh
        data = b"".join(messages)
        return self._submit(data, len(data))

    def tensor(self, phase, capture, scope, call, slot, op, value, padding=NO_PADDING):
        """`value`: a values.Memory. `padding`: the kind of padding (EMBEDDING, LABELS) and its index."""
        device, index, dtype, rank, version, data, storage, base, size, stream, dims = value
        self.messages.append(TENSOR_MESSAGE.pack(
            TENSOR, 0, TENSOR_MESSAGE.size + 16 * rank, phase, capture, device, index, dtype, rank,
            _EXTENT_TENSOR, padding[0], scope, call, slot, op, version, padding[1], data, storage, base,
            size, stream) + _DIMS[rank].pack(*dims))

    def scope(self, phase, enter, scope, call):
        self.messages.append(SCOPE_MESSAGE.pack(SCOPE, 0, SCOPE_MESSAGE.size, phase, enter, scope, call))

    def step(self, index):
        self.messages.append(STEP_MESSAGE.pack(STEP, 0, STEP_MESSAGE.size, index))

    def op(self, phase, declared_alias, schema_known, scope, call, op, operands):
        """`operands`: (slot, is_output, of an input whether it is written and of an output whether it borrows,
        value, bytes spanned)."""
        message = bytearray(OP_MESSAGE.pack(
            OP, 0, OP_MESSAGE.size + OP_OPERAND.size * len(operands), phase, declared_alias, schema_known, scope, call,
            op, len(operands)))
        for slot, is_output, mark, value, span in operands:
            device, index, _, _, version, data, storage, base, size, _, _ = value
            written, borrows = (0, mark) if is_output else (mark, 0)
            message += OP_OPERAND.pack(
                slot, is_output, device, index, written, data, span, storage, base, size, version, borrows)
        self.messages.append(message)

    def op_begin(self, phase, scope, call, op):
        self.messages.append(OP_MESSAGE.pack(OP_BEGIN, 0, OP_MESSAGE.size, phase, 0, 0, scope, call, op, 0))

    def frames(self, kind, storage, frames):
        """OP_STACK, STORAGE_DEAD or TENSOR_STACK; `frames` are texts, innermost first."""
        ids = [self._engine.intern(frame) for frame in frames[:_MAX_FRAMES]]
        padded = ids + [0] * (len(ids) % 2)
        self.messages.append(
            FRAMES_MESSAGE.pack(kind, 0, FRAMES_MESSAGE.size + 4 * len(padded), storage, len(ids))
            + struct.pack("<%dI" % len(padded), *padded))

    def fact(self, name, value):
        intern = self._engine.intern
        self.messages.append(FACT_MESSAGE.pack(FACT, 0, FACT_MESSAGE.size, intern(name), intern(value)))

    def event_fact(self, scope, name, value):
        """`scope`: id of a module's name, or 0."""
        data = value.encode("utf-8", "replace")[:_MAX_FACT_BYTES]
        padded = data.ljust((len(data) + 7) // 8 * 8, b"\0")
        self.messages.append(EVENT_FACT_MESSAGE.pack(
            EVENT_FACT, 0, EVENT_FACT_MESSAGE.size + len(padded), scope, self._engine.intern(name), len(data)) + padded)

    def loss(self, reason, count):
        self.messages.append(LOSS_MESSAGE.pack(LOSS, 0, LOSS_MESSAGE.size, reason, count))

    def spent(self, ns):
        self.messages.append(SPENT_MESSAGE.pack(SPENT, 0, SPENT_MESSAGE.size, ns))

    def collective(self, phase, dtype, device, index, scope, call, op, group, members, reduction, rank, size, peer, stream,
                   sent, received, number, identity, tag):
        """Packs a collective. The tensors after it, up to the next submit(), are those that it sends."""
        self.messages.append(COLLECTIVE_MESSAGE.pack(
            COLLECTIVE, 0, COLLECTIVE_MESSAGE.size, phase, dtype, device, index, scope, call, op, group, members, reduction,
            rank, size, peer, stream, sent, received, number, identity, tag))

    def collective_values(self, identity, step):
        """Packs a header: the tensors after it, up to the next submit(), are of the collective `identity`, called in `step`."""
        self.messages.append(COLLECTIVE_VALUES_MESSAGE.pack(COLLECTIVE_VALUES, 0, COLLECTIVE_VALUES_MESSAGE.size, identity, step))

    def flight(self, phase, awaited, written, scope, call, op, slot, line, value, span):
        """`value`: a values.Memory that spans `span` bytes."""
        device, index, _, _, version, data, storage, base, size, _, _ = value
        self.messages.append(FLIGHT_MESSAGE.pack(
            FLIGHT, 0, FLIGHT_MESSAGE.size, phase, device, index, awaited, written, scope, call, op, slot, version, line,
            data, span, storage, base, size))

    def kernel(self, function, name, parameters):
        """`function`: its CUfunction. `parameters`: (slot, whether a pointer, dtype)."""
        intern = self._engine.intern
        self.messages.append(
            KERNEL_MESSAGE.pack(KERNEL, 0, KERNEL_MESSAGE.size + KERNEL_PARAM.size * len(parameters), function, intern(name),
                                len(parameters))
            + b"".join(KERNEL_PARAM.pack(intern(slot), dtype, is_pointer) for slot, is_pointer, dtype in parameters))

    def diagnostic(self, level, site, text):
        intern = self._engine.intern
        self.messages.append(
            DIAGNOSTIC_MESSAGE.pack(DIAGNOSTIC, 0, DIAGNOSTIC_MESSAGE.size, level, intern(site), intern(text)))

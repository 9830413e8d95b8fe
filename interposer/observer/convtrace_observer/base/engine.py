"""The C interface of the engine (interposer/abi/observer_abi.h): functions, enumerations and
messages. tests/python/abi_test.py compares every constant and offset here with that header.

A hook packs all it has to say into its thread's Batch and makes one call. Texts go over once and
are numbers afterwards.
"""
import ctypes
import struct

ABI = 1

# enum convtrace_message_kind
TENSOR, SCOPE, STEP, OP, OP_STACK, STORAGE_DEAD, FACT, LOSS, DIAGNOSTIC, OP_BEGIN, TENSOR_STACK = range(1, 12)
EVENT_FACT, SPENT = 12, 13

# format/model/events.h
FORWARD, DATA, LOSS_PHASE, BACKWARD, OPTIMIZER, RECOMPUTE, COMMUNICATION, EVALUATION = range(8)
HASH, STATS = 0, 1
NO_PADDING = (0, 0)
EMBEDDING, LABELS = 1, 2
WARNING = 1
LOST_TENSOR_KIND = 5

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
        """The functions of base/native.py in C++; raises if this process cannot have them."""
        make = ctypes.PyDLL(self._library._name).convtrace_python
        make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p]
        return make(config, *getattr(self._library, "stand_ins", (None, None)))

    def start(self):
        return self._library.convtrace_start() == ABI

    def intern(self, text):
        """Id of a text; 0 when the engine's table is full."""
        number = self._ids.get(text)
        if number is None:
            data = text.encode("utf-8", "replace")
            number = self._ids[text] = self._library.convtrace_intern(data, len(data))
        return number

    def forget_texts(self):
        """After a fork the child's engine may start with an empty table."""
        self._ids.clear()

    def setting(self, name):
        buffer = ctypes.create_string_buffer(4096)
        self._library.convtrace_setting(name.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def finish(self):
        """Closes the trace, for a process whose exit handlers will not run."""
        self._library.convtrace_finish()

    def scope_slot(self):
        """This native thread's slot as two 64-bit words: scope | call << 32, and phase."""
        address = self._library.convtrace_scope_slot()
        return memoryview((ctypes.c_uint64 * 2).from_address(address)).cast("B").cast("Q")


class Batch:
    """Messages of one hook call, in a buffer that is used again by the next. One per thread."""

    def __init__(self, engine, capacity=16384):
        self._engine = engine
        self._submit = engine.submit
        self._allocate(capacity)
        self.size = 0

    def _allocate(self, capacity):
        self._bytes = bytearray(capacity)
        self._view = (ctypes.c_char * capacity).from_buffer(self._bytes)

    def _claim(self, size):
        """Makes room for `size` bytes and returns where they begin."""
        start = self.size
        self.size = end = start + size
        if end > len(self._bytes):
            kept = self._bytes
            self._allocate(2 * end)
            self._bytes[:start] = kept[:start]
        return start

    def submit(self):
        """One call for everything packed; the answer's flags."""
        size, self.size = self.size, 0
        return self._submit(self._view, size)

    def tensor(self, phase, capture, scope, call, slot, op, value, padding=NO_PADDING):
        """`value`: a values.Memory; `padding`: what it is padding of, and its index."""
        device, index, dtype, rank, version, data, storage, base, size, stream, dims = value
        total = 80 + 16 * rank
        start = self._claim(total)
        TENSOR_MESSAGE.pack_into(
            self._bytes, start, TENSOR, 0, total, phase, capture, device, index, dtype, rank,
            _EXTENT_TENSOR, padding[0], scope, call, slot, op, version, padding[1], data, storage, base,
            size, stream)
        _DIMS[rank].pack_into(self._bytes, start + 80, *dims)

    def scope(self, phase, enter, scope, call):
        SCOPE_MESSAGE.pack_into(
            self._bytes, self._claim(24), SCOPE, 0, 24, phase, enter, scope, call)

    def step(self, index):
        STEP_MESSAGE.pack_into(self._bytes, self._claim(16), STEP, 0, 16, index)

    def op(self, phase, declared_alias, schema_known, scope, call, op, operands):
        """`operands`: (slot, is_output, of an input whether it is written and of an output whether it borrows,
        value, bytes spanned)."""
        total = OP_MESSAGE.size + OP_OPERAND.size * len(operands)
        start = self._claim(total)
        OP_MESSAGE.pack_into(
            self._bytes, start, OP, 0, total, phase, declared_alias, schema_known, scope, call, op,
            len(operands))
        start += OP_MESSAGE.size
        for slot, is_output, mark, value, span in operands:
            device, index, _, _, version, data, storage, base, size, _, _ = value
            written, borrows = (0, mark) if is_output else (mark, 0)
            OP_OPERAND.pack_into(
                self._bytes, start, slot, is_output, device, index, written, data, span, storage, base,
                size, version, borrows)
            start += OP_OPERAND.size

    def op_begin(self, phase, scope, call, op):
        OP_MESSAGE.pack_into(self._bytes, self._claim(OP_MESSAGE.size), OP_BEGIN, 0, OP_MESSAGE.size, phase,
                             0, 0, scope, call, op, 0)

    def frames(self, kind, storage, frames):
        """OP_STACK, STORAGE_DEAD or TENSOR_STACK; `frames` are texts, innermost first."""
        ids = [self._engine.intern(frame) for frame in frames[:_MAX_FRAMES]]
        padded = ids + [0] * (len(ids) % 2)
        total = FRAMES_MESSAGE.size + 4 * len(padded)
        start = self._claim(total)
        FRAMES_MESSAGE.pack_into(self._bytes, start, kind, 0, total, storage, len(ids))
        struct.pack_into("<%dI" % len(padded), self._bytes, start + FRAMES_MESSAGE.size, *padded)

    def fact(self, name, value):
        intern = self._engine.intern
        FACT_MESSAGE.pack_into(
            self._bytes, self._claim(16), FACT, 0, 16, intern(name), intern(value))

    def event_fact(self, scope, name, value):
        """`scope`: id of a module's name, or 0."""
        data = value.encode("utf-8", "replace")[:_MAX_FACT_BYTES]
        size = EVENT_FACT_MESSAGE.size
        start = self._claim(size + (len(data) + 7) // 8 * 8)
        EVENT_FACT_MESSAGE.pack_into(
            self._bytes, start, EVENT_FACT, 0, self.size - start, scope, self._engine.intern(name), len(data))
        self._bytes[start + size:self.size] = data.ljust(self.size - start - size, b"\0")

    def loss(self, reason, count):
        LOSS_MESSAGE.pack_into(self._bytes, self._claim(24), LOSS, 0, 24, reason, count)

    def spent(self, ns):
        SPENT_MESSAGE.pack_into(self._bytes, self._claim(16), SPENT, 0, 16, ns)

    def diagnostic(self, level, site, text):
        intern = self._engine.intern
        DIAGNOSTIC_MESSAGE.pack_into(
            self._bytes, self._claim(24), DIAGNOSTIC, 0, 24, level, intern(site), intern(text))

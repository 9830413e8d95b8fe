"""A recording engine: decodes every message that the observer sends, so that tests can look at
them. It has the functions of interposer/abi/observer_abi.h and stands in for the ctypes library.
"""
import ctypes
import os
import struct
import sys
from types import SimpleNamespace

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "interposer", "observer"))

from convtrace_observer.base import engine  # noqa: E402
from convtrace_observer.observer import Observer  # noqa: E402

# "python": the observer's own functions do what those in C++ do otherwise.
PART = os.environ.get("CONVTRACE_TEST_PART", "native")
LIBRARY = os.path.join(
    os.environ.get("CONVTRACE_BUILD", os.path.join(ROOT, "build", "release")), "lib", "libconvtrace-core.so")
PHASES = ("forward", "data", "loss", "backward", "optimizer", "recompute", "communication",
          "evaluation", "tuning")


class FakeEngine:
    def __init__(self, mode="stats", settings=(), part=PART):
        self.texts = [None]
        self.messages = []  # SimpleNamespace, in order
        self.submits = 0
        self.answer = 0 if mode == "launches" else engine.SUBMIT_CAPTURE
        self.watch_ops = False  # answer an OP with WATCH
        self.settings = {"CONVTRACE_MODE": mode, **dict(settings)}
        self.slots = {}
        self.errors = []  # of this class, in calls from C++, where ctypes drops them
        self.on_tensor = None  # called with each decoded tensor while its memory is valid
        # The library with the observer's functions in C++, and what these call in place of the engine.
        self._name = "" if part == "python" else LIBRARY
        self.stand_ins = (
            ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)(
                lambda address, size: self._submit_in_cpp(ctypes.string_at(address, size), size)),
            ctypes.CFUNCTYPE(ctypes.c_void_p)(self.convtrace_scope_slot))

    # The C interface.
    def convtrace_start(self):
        return engine.ABI

    def convtrace_intern(self, data, size):
        assert len(data) == size
        self.texts.append(data.decode())
        return len(self.texts) - 1

    def convtrace_finish(self):
        pass

    def convtrace_setting(self, name, buffer, capacity):
        buffer.value = self.settings.get(name.decode(), "").encode()
        return len(buffer.value)

    def convtrace_scope_slot(self):
        import threading

        slot = self.slots.setdefault(threading.get_ident(), (ctypes.c_uint32 * 6)())
        return ctypes.addressof(slot)

    def convtrace_submit(self, buffer, size):
        data = bytes(buffer[:size])
        self.submits += 1
        flags, position = self.answer, 0
        while position < size:
            kind, reserved, total = struct.unpack_from("<HHI", data, position)
            assert reserved == 0 and total % 8 == 0 and total >= 8, (kind, total)
            message = self._decode(kind, data[position:position + total])
            self.messages.append(message)
            if kind == engine.OP and self.watch_ops:
                flags |= engine.SUBMIT_WATCH
            position += total
        assert position == size
        return flags

    def _submit_in_cpp(self, data, size):
        try:
            return self.convtrace_submit(data, size)
        except Exception as error:
            self.errors.append(error)
            return self.answer

    def slot(self):
        """@return the content of this thread's slot, as the engine would read it: (scope, call, phase)."""
        import threading

        scope, call, phase, *_ = self.slots[threading.get_ident()]
        return self.texts[scope], call, PHASES[phase]

    def of(self, kind):
        return [message for message in self.messages if message.kind == kind]

    def tensors(self, **wanted):
        return [tensor for tensor in self.of("tensor")
                if all(getattr(tensor, key) == value for key, value in wanted.items())]

    def _decode(self, kind, data):
        return getattr(self, "_decode_%d" % kind)(data)

    def _decode_1(self, data):
        (_, _, _, phase, capture, device, index, dtype, rank, extent, padding, scope, call, slot, op,
         version, pad_index, address, storage, base, size, stream) = engine.TENSOR_MESSAGE.unpack_from(data)
        dims = struct.unpack_from("<%dq" % (2 * rank), data, engine.TENSOR_MESSAGE.size)
        tensor = SimpleNamespace(
            kind="tensor", phase=PHASES[phase], capture=("hash", "stats")[capture], device=device,
            index=index, dtype=dtype, shape=dims[:rank], strides=dims[rank:],
            scope=self.texts[scope], call=call, slot=self.texts[slot], op=self.texts[op],
            version=version, address=address, storage=storage, base=base, size=size, stream=stream,
            padding=(padding, pad_index))
        if self.on_tensor is not None:
            self.on_tensor(tensor)
        return tensor

    def _decode_2(self, data):
        _, _, _, phase, enter, scope, call = engine.SCOPE_MESSAGE.unpack(data)
        return SimpleNamespace(kind="scope", phase=PHASES[phase], enter=bool(enter),
                               scope=self.texts[scope], call=call)

    def _decode_3(self, data):
        return SimpleNamespace(kind="step", index=engine.STEP_MESSAGE.unpack(data)[3])

    def _decode_4(self, data):
        _, _, _, phase, alias, schema, scope, call, op, count = engine.OP_MESSAGE.unpack_from(data)
        operands = []
        for i in range(count):
            slot, is_output, device, index, written, address, span, storage, base, size, version, borrows = (
                engine.OP_OPERAND.unpack_from(
                    data, engine.OP_MESSAGE.size + i * engine.OP_OPERAND.size))
            operands.append(SimpleNamespace(
                slot=self.texts[slot], is_output=bool(is_output), written=bool(written), borrows=bool(borrows), address=address, bytes=span,
                storage=storage, base=base, size=size, version=version))
        return SimpleNamespace(kind="op", phase=PHASES[phase], declared_alias=bool(alias),
                               schema_known=bool(schema), scope=self.texts[scope], call=call,
                               op=self.texts[op], operands=operands)

    def _decode_16(self, data):
        _, _, _, function, name, count = engine.KERNEL_MESSAGE.unpack_from(data)
        parameters = []
        for i in range(count):
            slot, dtype, is_pointer = engine.KERNEL_PARAM.unpack_from(data, engine.KERNEL_MESSAGE.size + i * engine.KERNEL_PARAM.size)
            parameters.append((self.texts[slot], bool(is_pointer), dtype))
        return SimpleNamespace(kind="kernel", function=function, name=self.texts[name], parameters=parameters)

    def _decode_5(self, data, kind="op_stack"):
        _, _, _, storage, count = engine.FRAMES_MESSAGE.unpack_from(data)
        ids = struct.unpack_from("<%dI" % count, data, engine.FRAMES_MESSAGE.size)
        return SimpleNamespace(kind=kind, storage=storage, frames=[self.texts[i] for i in ids])

    def _decode_6(self, data):
        return self._decode_5(data, "storage_dead")

    def _decode_7(self, data):
        _, _, _, name, value = engine.FACT_MESSAGE.unpack(data)
        return SimpleNamespace(kind="fact", name=self.texts[name], value=self.texts[value])

    def _decode_8(self, data):
        _, _, _, reason, count = engine.LOSS_MESSAGE.unpack(data)
        return SimpleNamespace(kind="loss", reason=reason, count=count)

    def _decode_9(self, data):
        _, _, _, level, site, text = engine.DIAGNOSTIC_MESSAGE.unpack(data)
        return SimpleNamespace(kind="diagnostic", level=level, site=self.texts[site],
                               text=self.texts[text])

    def _decode_10(self, data):
        begin = self._decode_4(data)
        begin.kind = "op_begin"
        return begin

    def _decode_12(self, data):
        _, _, _, scope, name, size = engine.EVENT_FACT_MESSAGE.unpack_from(data)
        start = engine.EVENT_FACT_MESSAGE.size
        return SimpleNamespace(kind="event_fact", scope=self.texts[scope], name=self.texts[name],
                               value=data[start:start + size].decode())

    def _decode_13(self, data):
        return SimpleNamespace(kind="spent", ns=engine.SPENT_MESSAGE.unpack(data)[3])

    def _decode_17(self, data):
        (_, _, _, phase, device, index, awaited, written, scope, call, op, slot, version, line, address, span, storage, base,
         size) = engine.FLIGHT_MESSAGE.unpack(data)
        return SimpleNamespace(
            kind="flight", phase=PHASES[phase], device=(device, index), awaited=bool(awaited), written=bool(written),
            scope=self.texts[scope], call=call, op=self.texts[op], slot=self.texts[slot], version=version,
            line=self.texts[line], address=address, bytes=span, storage=storage, base=base, size=size)

    def _decode_14(self, data):
        (_, _, _, phase, dtype, device, index, scope, call, op, group, members, reduction, rank, size, peer, stream, sent, received,
         number, identity, tag) = engine.COLLECTIVE_MESSAGE.unpack(data)
        return SimpleNamespace(
            kind="collective", phase=PHASES[phase], dtype=dtype, device=(device, index), scope=self.texts[scope], call=call,
            op=self.texts[op], group=self.texts[group], members=self.texts[members], reduction=self.texts[reduction], rank=rank,
            size=size, peer=peer, stream=stream, sent=sent, received=received, number=number, id=identity, tag=tag)

    def _decode_15(self, data):
        _, _, _, identity, step = engine.COLLECTIVE_VALUES_MESSAGE.unpack(data)
        return SimpleNamespace(kind="collective_values", id=identity, step=step)


def observe(torch, mode="stats", settings=(), part=PART):
    """Installs an observer over a fresh fake engine. @return (fake, observer)"""
    fake = FakeEngine(mode, settings, part)
    observer = Observer(torch, engine.Engine(fake))
    is_native = "built-in" in repr(observer.hot.enter)
    assert is_native == (part != "python" and dict(settings).get("CONVTRACE_STACKS") != "all"), observer.hot.enter
    observer.install()
    return fake, observer

"""Where each thread of the program is: the modules it is in, and the slot the engine reads.

The slot is written without a call: the engine reads it on the same native thread when a kernel is
launched or memory allocated.
"""
import sys
import threading

from . import engine

_CALL_SHIFT = 32


def slot_key(place, call):
    """First word of a slot: scope | call << 32."""
    return place.id | call << _CALL_SHIFT


class Thread:
    """State of one native thread."""

    __slots__ = ("stack", "keys", "slot", "phase", "batch", "ops")

    def __init__(self, port):
        self.stack = []  # Entry of each running module, outermost first
        self.keys = [0]  # slot word to go back to; below the outermost module: none
        self.slot = port.scope_slot()
        self.phase = engine.FORWARD
        self.batch = engine.Batch(port)
        self.ops = 0  # torch.library ops running

    def enter(self, entry, key):
        self.stack.append(entry)
        self.keys.append(key)
        self.slot[0] = key

    def leave(self):
        self.stack.pop()
        self.keys.pop()
        self.slot[0] = self.keys[-1]

    def clear(self):
        self.stack.clear()
        del self.keys[1:]
        self.set_phase(engine.FORWARD)
        self.slot[0] = 0

    def set_phase(self, phase):
        self.phase = self.slot[1] = phase

    def place(self):
        """(scope id, call) of where this thread is now, also in the backward pass."""
        key = self.slot[0]
        return key & 0xFFFFFFFF, key >> _CALL_SHIFT


class Threads(threading.local):
    """`threads.state` is the calling thread's Thread, made at first use."""

    def __init__(self, port):
        self.state = Thread(port)


def modules_on_python_stack(code):
    """How many module calls (`code` of Module._call_impl) really run on this thread. An interrupt
    (KeyboardInterrupt, SystemExit) leaves a module without any hook being called; this tells a
    leftover of it from a module that calls itself."""
    count, frame = 0, sys._getframe(1)
    while frame is not None:
        count += frame.f_code is code
        frame = frame.f_back
    return count


def python_frames():
    """Frames of this thread, innermost first, without the observer's own."""
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FOLDER):
            frames.append("%s (%s:%d)" % (code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frames


_OWN_FOLDER = __file__.rpartition("/")[0] + "/"

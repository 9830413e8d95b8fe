"""The position of each thread in the program: the modules that it is in, and the slot that the engine reads.

The slot is written without a call: the engine reads it on the same native thread when a kernel is
launched or memory allocated.
"""
import _thread
import sys
import threading

from . import FOLDER, engine, spent

class TellingBatch(engine.Batch):
    """Records the program's stack before the tensors of each hook."""

    def __init__(self, port):
        super().__init__(port)
        self._told = False

    def tensor(self, *what):
        if not self._told:
            self._told = True
            self.frames(engine.TENSOR_STACK, 0, python_frames())
        super().tensor(*what)

    def submit(self):
        self._told = False
        return super().submit()


class Thread:
    """The state of one native thread."""

    __slots__ = ("entry", "slot", "batch", "op", "op_modes", "after_root", "followed", "until_timed", "began", "spent")

    def __init__(self, port):
        self.entry = None  # naming.Entry of the innermost running module
        self.slot = port.scope_slot()  # [scope | call << 32, phase, calls of NCCL]
        tells = port.setting("CONVTRACE_STACKS") == "all"
        self.batch = TellingBatch(port) if tells else engine.Batch(port)
        self.op = None  # tag of the innermost torch.library op that is running: used by ops.py
        self.op_modes = 0  # used by aten_ops.py
        self.after_root = engine.FORWARD  # phase to set in the slot when the running root returns
        self.followed = {}  # outputs of modules in the running root that have hooks: used by gradients.py
        self.until_timed, self.began, self.spent = spent.EVERY // 2, 0, 0  # used by spent.py

    def place(self):
        """@return (scope id, call) of this thread's current position, also in the backward pass."""
        key = self.slot[0]
        return key & 0xFFFFFFFF, key >> 32

    def clear(self):
        self.entry = None
        self.slot[0], self.slot[1] = 0, engine.FORWARD


class Threads(threading.local):
    """`threads.state` is the calling thread's Thread, made at first use."""

    def __init__(self, port):
        self.state = Thread(port)

    def are_pythons(self):
        """@return whether `state` belongs to a Python thread and lives as long. The threading.local of gevent and eventlet,
        which may replace Python's, has one state for each greenlet."""
        return _thread._local in type(self).__mro__


def python_frames():
    """@return the frames of this thread, innermost first, without the observer's own."""
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(FOLDER):
            frames.append("%s (%s:%d)" % (code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frames

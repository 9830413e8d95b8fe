"""Hashes, when a backward pass begins, the tensors that backwards of autograd.Functions read from objects that outlive the call
(code_uses.py), so that a write between forward and backward pass is told from one by a later call.
"""
from ..base import engine
from . import code_uses

_MOST = 64  # classes of Functions of one step


class FunctionState:
    def __init__(self, observer):
        self._observer = observer
        self.forget()

    def forget(self):
        self._step, self._functions = -1, {}

    def note_function(self, kind, outside):
        """Notes that a Function's call has kept tensors in objects that outlive it. `kind`: a reference to the class of its node."""
        if self._step != self._observer.step:
            self._step, self._functions = self._observer.step, {}
        if len(self._functions) < _MOST:
            self._functions[id(outside)] = kind, outside

    def look_again(self, thread):
        """Records the tensors of the noted Functions when a backward pass begins."""
        if self._step != self._observer.step or not self._functions:
            return
        functions, self._functions = self._functions, {}
        observer = self._observer
        try:
            with observer.read.unobserved():
                for kind, outside in functions.values():
                    kind = kind()
                    function = kind and code_uses.function_of(kind._forward_cls, "backward")
                    for name, tensor in outside.found(function) if function else ():
                        value = observer.read.again(tensor) if observer.read.is_plain(tensor) else None
                        if value is not None:
                            thread.batch.tensor(engine.LOSS_PHASE, engine.HASH, 0, 0, observer.modules.slot("state", name), 0, value)
            observer.submit(thread)
        except Exception as error:
            observer.failed("state of functions", error)

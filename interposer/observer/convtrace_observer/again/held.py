"""Records tensors that a hook of a tensor reads from around it, when it is registered and when the backward pass begins: memory that
a later call fills is then another call's. Only what the code that registers the hook replaces before it reads it counts
(code_uses.py), and only for a hook that calls nothing that may write it.

Also hashes, when a backward pass begins, what the backwards of autograd.Functions read in the same way, so that a write behind the
forward pass is told from one in the backward pass.
"""
import sys
import types

from ..base import engine
from . import code_uses

_MOST = 64  # hooks, and classes of Functions, of one step
_MOST_CODES = 1 << 10


class Held:
    def __init__(self, observer, torch):
        self._observer, self._torch = observer, torch
        self.forget()
        self._known = {}  # (code of a hook, code that registers it) -> Outside, or None if nothing is to be recorded

    def install(self, replaced):
        replaced.surround(self._observer, self._torch.Tensor, "register_hook", self._registers, self._registered)

    def forget(self):
        self._step, self._hooks, self._functions, self._calls = -1, [], {}, {}

    def note_function(self, kind, outside):
        """Notes that a Function's call has kept tensors in objects that outlive it. `kind`: a reference to the class of its node."""
        self._begin()
        if len(self._functions) < _MOST:
            self._functions[id(outside)] = kind, outside

    def _begin(self):
        if self._step != self._observer.step:
            self.forget()
            self._step = self._observer.step

    def _registers(self, args, kwargs):
        observer = self._observer
        if not observer.capture or kwargs or len(args) != 2 or observer.is_compiling() or observer.is_tracing():
            return None
        hook, objects = _parts_of(args[1])
        if hook is None or observer.threads.state.slot[1] != engine.FORWARD:
            return None
        key = hook.__code__, sys._getframe(1).f_code
        outside = self._known.get(key, self)
        if outside is self:
            if len(self._known) == _MOST_CODES:
                self._known.clear()
            outside = code_uses.Outside(key[1:], key[0], code_uses.SELF if objects else None)
            outside = self._known[key] = outside if outside.paths else None
        return None if outside is None else (outside, hook, objects)

    def _registered(self, state, handle, raised):
        observer, (outside, hook, objects) = self._observer, state
        if raised:
            return
        try:
            self._begin()
            if len(self._hooks) == _MOST or not outside.computes_only(hook, objects, observer.read.is_plain):
                return
            thread, code = observer.threads.state, hook.__code__
            place = thread.place()
            number = self._calls[code, place] = self._calls.get((code, place), -1) + 1
            name = "hook %s (%s)" % (code.co_name, observer.module_facts.code.place(code.co_filename, code.co_firstlineno))
            noted = handle.hooks_dict_ref, handle.id, outside, place, number, observer.port.intern(name)
            if self._record(thread, engine.FORWARD, noted, ("state",)):
                self._hooks.append(noted)
        except Exception as error:
            observer.failed("hooks of tensors", error)

    def look_again(self, thread):
        """Records the noted tensors when a backward pass begins. A hook whose tensor and graph are gone is left out."""
        if self._step != self._observer.step:
            return
        hooks, self._hooks = self._hooks, []
        functions, self._functions = self._functions, {}
        observer = self._observer
        try:
            with observer.read.unobserved():
                for kind, outside in functions.values():
                    kind = kind()
                    function = kind and code_uses.function_of(kind._forward_cls, "backward")
                    for name, tensor in outside.found(function) if function else ():
                        self._pack(thread, engine.LOSS_PHASE, (0, 0), observer.modules.slot("state", name), 0, tensor)
            for noted in hooks:
                self._record(thread, engine.LOSS_PHASE, noted, ("state",))
            for noted in hooks:
                self._record(thread, engine.BACKWARD, noted, ("state", "state_after"))
        except Exception as error:
            observer.failed("hooks of tensors", error)

    def _record(self, thread, phase, noted, words):
        """@return whether anything was recorded."""
        reference, key, outside, place, number, op = noted
        hook, objects = _parts_of(dict.get(reference() or {}, key))
        any_packed = False
        if hook is not None:
            with self._observer.read.unobserved():
                for name, tensor in outside.found(hook, objects):
                    for word in words:
                        slot = self._observer.modules.slot(word, "%s@%d" % (name, number) if number else name)
                        any_packed |= self._pack(thread, phase, place, slot, op, tensor)
        self._observer.submit(thread)
        return any_packed

    def _pack(self, thread, phase, place, slot, op, tensor):
        value = self._observer.read.again(tensor) if self._observer.read.is_plain(tensor) else None
        if value is not None:
            thread.batch.tensor(phase, engine.HASH, *place, slot, op, value)
        return value is not None


def _parts_of(hook):
    """@return a hook's function and [(name of its first argument, object)] of a method; (None, ()) for another kind."""
    if type(hook) is types.MethodType and type(hook.__func__) is types.FunctionType and hook.__func__.__code__.co_argcount:
        return hook.__func__, ((hook.__func__.__code__.co_varnames[0], hook.__self__),)
    return (hook, ()) if type(hook) is types.FunctionType else (None, ())

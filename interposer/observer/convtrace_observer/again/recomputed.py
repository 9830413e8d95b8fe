"""Records buffers that a recomputation writes in code of a module that is not called: under checkpoint(self.method, x) only the
modules that the method calls are.

A module whose method runs when another one is called in a recomputation is found by the `self` of the functions on the stack. Its
buffers are compared behind that: when the recomputation calls the next module, or begins the backward pass of what it has
computed. In between only the code of the recomputation runs, and no node of the graph whose hooks could write them. One
recomputation is told from the next by the hooks that torch.utils.checkpoint sets or by the autograd.Function that runs. Buffers
that the forward pass has left as they were count each batch once.

Buffers that a recomputation has written are recorded before the next forward pass: they may have been put back.
"""
import types

from ..base import callers, contents, engine, held, nodes

_MOST = 16  # modules


class Recomputed:
    def __init__(self, observer, torch, state_of, kept_by):
        """@param state_of  the state of a module's buffers @param kept_by  [(name, tensor)] of the persistent ones"""
        self._observer = observer
        self._module = torch.nn.Module
        self._state_of, self._kept_by = state_of, kept_by
        self._hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        self._nodes = nodes.Nodes(torch)
        self._step, self._begun = -1, {}  # entry -> state of its buffers when the forward pass began
        self._last, self._noted = None, []  # the recomputation, [(entry, module, state of its buffers)]
        self._wrote = set()  # entries whose buffers a recomputation has written since the last forward pass

    def wrote(self, entry):
        """Notes a module whose buffers were recorded in a recomputation."""
        self._wrote.add(entry)

    def record_written(self, thread, root):
        """Records the buffers that a recomputation has written, before a forward pass."""
        if not self._wrote:
            return
        wrote, self._wrote, observer = self._wrote, set(), self._observer
        with observer.read.unobserved():
            for entry, module in observer.names.modules(root):
                if entry in wrote:  # also where torch counts no write, as through .data
                    entry.buffers = self._state_of(module)
                    observer.modules.pack_initial(thread.batch, entry, module)
            observer.submit(thread)

    def begin(self, root):
        """Notes the buffers of a root that is about to be called in training. Recomputations are looked at in this step."""
        if self._step != self._observer.step:
            self._step, self._begun = self._observer.step, {}
        with self._observer.read.unobserved():
            for entry, module in self._observer.names.modules(root):
                if held(module, "_buffers"):
                    self._begun.setdefault(entry, self._state_of(module))

    def called(self, thread):
        """Notes the modules whose methods run, when one calls a module in a recomputation."""
        if self._step != self._observer.step or not self._begun:
            return
        running = self._running()
        if running is not None and running == self._last:
            self.look(thread)
        self._last, self._noted = running, []
        found = callers.selves()
        with self._observer.read.unobserved():
            for one in found:
                if issubclass(type(one), self._module) and len(self._noted) < _MOST and held(one, "_buffers"):
                    entry = self._observer.names.entry(one)
                    begun = self._begun.get(entry)
                    if begun is not None and begun != entry.buffers:
                        self._noted.append((entry, one, self._state_of(one)))

    def look(self, thread):
        """Records the buffers of the noted modules that were written since."""
        noted, self._noted, observer = self._noted, [], self._observer
        with observer.read.unobserved():
            for entry, module, before in noted:
                state, place = self._state_of(module), entry.place
                if state in (before, entry.buffers):  # the second: recorded when its call ended
                    continue
                entry.buffers = state
                self.wrote(entry)
                for name, tensor in self._kept_by(module):
                    observer.pack(thread.batch, engine.RECOMPUTE, observer.full, place.id, place.recomputes,
                                  observer.modules.slot("buffer", name), tensor)
                observer.submit(thread)

    def forget(self):
        """Behind a backward pass."""
        self._last, self._noted = None, []

    def _running(self):
        """@return what one recomputation has for itself; None if it is not known to be one."""
        hooks = self._hooks(True) if self._hooks is not None else None
        hook = hooks[0] if hooks else None
        if type(hook) is types.FunctionType and hook.__module__ == "torch.utils.checkpoint":
            return hook
        node = self._nodes.running()
        if node is None or not self._nodes.is_of_function(node) or contents.name_of(type(node)) == "BackwardHookFunctionBackward":
            return None
        return id(node), self._nodes.number(node)

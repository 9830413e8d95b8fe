"""Records buffers that are not persistent, and tensors in attributes of modules, which a forward pass has changed and a recomputation
(activation checkpointing) may change again. Only hashes are taken: such memory may be a cache that is not filled yet.

A change is seen by the tensor's identity and count of writes. Looked at are steps 1, 2, 4, 8 and so on of a root, tensors in host
memory without gradient, and modules with one call in the forward pass and one recomputation: a scratch tensor of several calls holds
what the last one left.
"""
import weakref

from ..base import contents, engine, values

_MOST = 256  # tensors of a step


class RecomputedState:
    def __init__(self, observer):
        self._observer = observer
        self._forget()

    def _forget(self):
        self._root, self._noted, self._moved, self._is_recorded = lambda: None, {}, (), False

    def note(self, root):
        """Notes the state of a root's modules before a forward pass of training."""
        self._forget()
        try:
            self._root = weakref.ref(root)
            with self._observer.read.unobserved():
                self._noted = {(id(entry), name): _state_of(tensor) for entry, name, tensor in self._tensors(root)}
        except Exception as error:
            self._observer.failed("recomputed state", error)

    def backward_begins(self):
        """Finds what the forward pass has changed."""
        root, noted = self._root(), self._noted
        self._forget()
        if root is not None and noted:
            with self._observer.read.unobserved():
                self._moved = [(entry, name) for entry, name, tensor in self._tensors(root)
                               if noted.get((id(entry), name)) not in (None, _state_of(tensor))]
            self._root = weakref.ref(root)

    def recomputes(self, thread):
        """Records what the forward pass has left, when the first module of a backward pass is recomputed."""
        if self._moved and not self._is_recorded:
            self._is_recorded = True
            try:
                self._record(thread, engine.FORWARD)
            except Exception as error:
                self._observer.failed("recomputed state", error)

    def backward_ended(self, thread):
        """Records what the recomputation has left."""
        if self._is_recorded:
            self._record(thread, engine.RECOMPUTE)
        self._forget()

    def _record(self, thread, phase):
        observer, root, moved = self._observer, self._root(), {(id(entry), name) for entry, name in self._moved}
        if root is None or not observer.capture:
            return
        with observer.read.unobserved():
            for entry, name, tensor in self._tensors(root):
                place = entry.place
                is_judged = place.step == observer.step and place.calls == 1 and (phase == engine.FORWARD or place.recomputes == 1)
                if is_judged and (id(entry), name) in moved and (value := observer.read.again(tensor)) is not None:
                    thread.batch.tensor(phase, engine.HASH, place.id, 0, observer.modules.slot("passing", name), 0, value)
        observer.submit(thread)

    def _tensors(self, root):
        """@return [(entry, name, tensor)] of the modules of a root. Must run inside `with read.unobserved()`."""
        found, read = [], self._observer.read
        for entry, module in self._observer.names.modules(root):
            held = contents.attributes(module)
            passing = dict.get(held, "_non_persistent_buffers_set")
            named = [*contents.items(held), *((name, one) for name, one in contents.items(dict.get(held, "_buffers"))
                                              if type(name) is str and issubclass(type(passing), set) and set.__contains__(passing, name))]
            found += [(entry, name, one) for name, one in named
                      if type(name) is str and read.is_plain(one) and one.is_cpu and not one.requires_grad]
        return found[:_MOST]


def _state_of(tensor):
    return id(tensor), values.version(tensor)

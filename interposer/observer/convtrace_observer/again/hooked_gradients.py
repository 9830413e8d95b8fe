"""Finds hooks of tensors that write in place a gradient which another branch of the graph holds: a sum gives each of its operands the
same tensor.

When the gradient of a module's output arrives, our hook is called before those of the program. If autograd holds the gradient twice,
it is hashed again behind them, right before the node runs (slot `grad_output_hooked:I`), by a prehook of the node for this one time.
How many references autograd has to a gradient that it holds once is the least number that was seen. Gradients that a pass collects
for the program (torch.autograd.grad) have more, so only the outer pass of backward() is looked at. Hooks of tensors are neither
wrapped nor asked for.
"""
import functools

from ..base import contents, engine, nodes

_MOST_OUTPUTS = 8  # of a module


class HookedGradients:
    def __init__(self, observer, torch):
        self._observer = observer
        self._nodes, self._handles = nodes.Nodes(torch), torch.utils.hooks.RemovableHandle
        self._alone = 1 << 30  # references to a gradient that autograd holds once
        self._slots, self._roots = {}, set()
        self._pass, self._written = -1, set()  # its graph task, None before it is known; gradients that hooks have written in it

    def begin(self, losses=()):
        """A pass of backward() begins. Autograd holds the gradients that it begins with, whoever else does."""
        self._pass = None
        self._roots = {id(one.grad_fn) for one in losses}
        self._written.clear()

    def come(self, targets, gradient):
        """Our hook at a module's output has been called. `targets`: those of GradHook."""
        read, task, node = self._observer.read, self._nodes.graph_task(), self._nodes.running()
        self._pass = task if self._pass is None else self._pass
        if task != self._pass or node is None or id(node) in self._roots or self._nodes.is_of_function(node) or not (
                read.has_storage(gradient) and gradient.is_cpu and hasattr(node, "register_prehook")):
            return
        with read.unobserved():
            count, value = gradient._use_count(), read.again(gradient)
            self._alone = min(self._alone, count)
            if value is None or count <= self._alone and _memory_of(value) not in self._written:
                return
            number, handle = self._handles.next_id, []
            behind = functools.partial(self._behind, targets[0], value, count > self._alone, contents.name_of(type(node)), handle)
            handle.append(node.register_prehook(behind))
            if self._handles.next_id == number + 1:  # no other thread has drawn one
                self._handles.next_id = number  # the program's hooks keep their numbers

    def _behind(self, target, before, is_shared, name, handle, gradients):
        """The hooks of the program have run. @param handle  [that of this prehook] @param gradients  of the node's outputs"""
        handle.pop().remove()
        observer, (key, slot) = self._observer, target
        try:
            with observer.read.unobserved():
                now = [value for value in map(observer.read.again, gradients) if value is not None and _memory_of(value) == _memory_of(before)]
                slot = self._slot_behind(slot)
                if not now or slot is None:
                    return
                is_counted = now[0].version != before.version
                if is_counted:
                    self._written.add(_memory_of(before))
                if is_shared or is_counted:
                    thread = observer.threads.state
                    thread.batch.tensor(engine.BACKWARD, engine.HASH, key & 0xFFFFFFFF, key >> 32, slot, observer.port.intern(name), before)
                    observer.submit(thread)
        except Exception as error:
            observer.failed("gradients behind hooks", error)

    def _slot_behind(self, slot):
        if not self._slots:
            of = self._observer.modules.slot
            self._slots = {of("grad_output", one): of("grad_output_hooked", one) for one in range(_MOST_OUTPUTS)}
        return self._slots.get(slot)


def _memory_of(value):
    return value.storage, value.data, value.dims

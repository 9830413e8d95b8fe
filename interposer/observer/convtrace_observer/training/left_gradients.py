"""Records gradients that an optimizer has used and that are still there when the next backward pass begins (`grad_before:NAME`):
that pass adds to them. They are known by their memory; the parameters are found in the graph of the pass. Looked at behind the
steps 1, 2, 4, 8 and so on of an optimizer. `convtrace check` tells those that were left while others were cleared.
"""
from ..base import contents, engine, is_power, nodes

_MOST_NODES = 1 << 14  # of a graph
_MOST_PASSES = 8  # backward passes between two steps of an optimizer
_MOST_OPTIMIZERS = 256


class LeftGradients:
    def __init__(self, observer, torch):
        self._observer, self._nodes = observer, nodes.Nodes(torch)
        self._steps = {}  # number of an optimizer -> its steps
        self._used = {}  # number of an optimizer -> {(storage, address) of a gradient: (scope, slot)}, behind such a step
        self._passes = 0

    def used(self, number, parameters):
        """Notes the gradients that a step of an optimizer is about to use. `parameters`: yields (parameter, owner)."""
        count = self._steps.get(number, 0) + 1
        if count == 1 and len(self._steps) == _MOST_OPTIMIZERS:
            return
        self._steps[number] = count
        self._used.pop(number, None)
        self._passes = 0
        if not is_power(count):
            return
        observer, read, found = self._observer, self._observer.read, {}
        with read.unobserved():
            for parameter, owner in parameters:
                gradient = read.bare(parameter).grad
                value = read.again(gradient) if gradient is not None else None
                if value is not None:
                    slot = observer.port.intern("grad_before:" + owner.name)
                    found[value.storage, value.data] = owner.place, slot
        self._used[number] = found

    def look(self, thread, structure):
        """Records those that are there when a backward pass begins. `structure`: the tensors that it starts from."""
        if not self._used or self._passes == _MOST_PASSES:
            return
        self._passes += 1
        observer, read = self._observer, self._observer.read
        with read.unobserved():
            for leaf in self._leaves(read.tensors(structure)):
                gradient = leaf.grad
                value = read.again(gradient) if gradient is not None else None
                if value is None:
                    continue
                for used in self._used.values():
                    if (value.storage, value.data) in used:
                        place, slot = used[value.storage, value.data]
                        call = observer.occurrence(place, engine.LOSS_PHASE, slot)
                        thread.batch.tensor(engine.LOSS_PHASE, observer.full, place.id, call, slot, 0, value)
        observer.submit(thread)

    def _leaves(self, tensors):
        """Yields the leaves of a graph to whose gradients a backward pass adds."""
        read, known = self._observer.read, self._nodes
        waiting = [node for node in (read.bare(tensor).grad_fn for tensor in tensors) if node is not None]
        seen = set()
        while waiting and len(seen) < _MOST_NODES:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if contents.name_of(type(node)) == "AccumulateGrad":
                if read.is_plain(node.variable):
                    yield node.variable
            else:
                waiting += [one for one, _ in known.next(node) if one is not None]

"""Finds memory that two tensors of an optimizer share: parameters that it updates, gradients that it reads, and its states,
one of which may be a parameter.

Only addresses are compared, exactly: parts of one flat buffer that lie side by side or interleaved share nothing, and a
tensor that is larger than its memory (expanded) is left out. The tensors are compared in the steps of an optimizer whose
number is a power of two, the gradients also in each of the first steps, and all of them after states were replaced or a pair
was found. A pair is recorded as a fact of the second tensor's module, `shares.SLOT` (format/FORMAT.md 6.6); `convtrace check`
decides whether it does harm.
"""
from ..base import contents, values

_EACH = 8  # first steps of an optimizer in which gradients are compared, and states if there are several optimizers
_MOST_PAIRS = 32  # recorded pairs of an optimizer
_MOST_OPTIMIZERS = 256
_MOST_STATES = 1 << 16  # states whose optimizers are remembered


class _Item:
    """A tensor and its owner. `of`: the id of the parameter that it belongs to."""

    __slots__ = ("of", "tensor", "place", "slot", "memory", "begin", "end")

    def __init__(self, of, tensor, place, slot, memory, end):
        self.of, self.tensor, self.place, self.slot, self.memory = of, tensor, place, slot, memory
        self.begin, self.end = memory.data, end


class _Watch:
    """The comparison state of one optimizer. `steps`: their number. `states`: the id of its dictionary of states. `due`:
    the next comparison covers all tensors."""

    __slots__ = ("steps", "due", "states", "gradients", "written", "told")

    def __init__(self):
        self.steps = self.states = 0
        self.due = False
        self.gradients = {}  # (slots of a pair) -> the storage that it shared in the last step
        self.written = {}  # storage -> how often its memory was written before this step, of states that share it
        self.told = set()


class SharedMemory:
    def __init__(self, observer, torch, parameters):
        """@param parameters  yields (parameter, owner) of the groups of an optimizer"""
        self._observer = observer
        self._tensor, self._parameters = torch.Tensor, parameters
        self._watches = {}  # number of an optimizer -> _Watch
        self._in_turn = set()  # recorded pairs of parameters whose states two optimizers write in turn
        self._written = {}  # (storage, address) of a state -> {number of an optimizer: the _Item as it left it}

    def before(self, thread, number, groups, state):
        """Compares before a step, when the gradients are complete. `groups`, `state`: as they stand in the optimizer's own
        dictionary, since a property would run code of the program and may belong to another optimizer."""
        if not issubclass(type(state), dict):
            return  # an optimizer of another kind
        watch = self._watches.get(number)
        if watch is None:
            if len(self._watches) == _MOST_OPTIMIZERS:
                return
            watch = self._watches[number] = _Watch()
        watch.steps += 1
        now = id(state)
        early = watch.steps <= _EACH
        watch.due = (watch.due or watch.states != now or watch.steps & (watch.steps - 1) == 0
                     or early and len(self._watches) > 1)
        watch.states = now
        if not watch.due and not early:
            return
        with self._observer.read.unobserved():
            all_parameters = list(self._parameters(groups))
            gradients = self._items((parameter, self._observer.read.bare(parameter).grad, owner.place, "grad:" + owner.name)
                                    for parameter, owner in all_parameters)
            watch.gradients, before = {}, watch.gradients
            states = self._items(self._states(state, all_parameters))
            for first, second in _pairs(gradients + states):
                if first.slot.startswith("grad:") and second.slot.startswith("state:"):
                    self._tell(thread, watch, number, first, second, "held")
            for first, second in _pairs(gradients):
                key, storage = (first.of, second.of), second.memory.storage
                watch.gradients[key] = storage
                word = ("kept" if before.get(key) == storage else "same" if first.tensor is second.tensor else
                        "new" if first.memory.storage == storage else "foreign")
                self._tell(thread, watch, number, first, second, word)
            if watch.written:
                watch.written = {item.memory.storage: item.memory.version for item in states
                                 if item.memory.storage in watch.written}
        self._submit(thread)

    def after(self, thread, number, groups, state):
        """Compares after a step. `groups`, `state`: as they are then."""
        watch = self._watches.get(number)
        if watch is None or not watch.due:
            return
        with self._observer.read.unobserved():
            all_parameters = list(self._parameters(groups))
            weights = self._items((parameter, parameter, owner.place, "param:" + owner.name)
                                  for parameter, owner in all_parameters)
            for first, second in _pairs(weights):
                self._tell(thread, watch, number, first, second, "updated")
            states = self._items(self._states(state, all_parameters))
            for first, second in _pairs(weights + states):
                if first.slot.startswith("param:") and second.slot.startswith("state:"):
                    self._tell(thread, watch, number, first, second, "held")
            pairs = _pairs(states)
            before, watch.written = watch.written, {}
            sharers = {}
            for _, second in pairs:
                sharers[second.memory.storage] = sharers.get(second.memory.storage, 1) + 1
            for first, second in pairs:
                storage, version = second.memory.storage, second.memory.version
                watch.written[storage] = version
                if storage in before:
                    often = version - before[storage] >= sharers[storage]
                    self._tell(thread, watch, number, first, second, "written" if often else "read")
            for item in states:
                self._compare_optimizers(thread, watch, number, item)
        watch.due = bool(watch.gradients or watch.written) and len(watch.told) < _MOST_PAIRS
        self._submit(thread)

    def _submit(self, thread):
        if thread.batch.messages:
            self._observer.submit(thread)

    def _compare_optimizers(self, thread, watch, number, item):
        """Finds a state that this optimizer wrote, then another one for another parameter, and now this one again."""
        known = self._written.get((item.memory.storage, item.begin))
        if known is None:
            if len(self._written) == _MOST_STATES:
                self._written.clear()
            known = self._written[item.memory.storage, item.begin] = {}
        mine = known.get(number)
        for other, left in known.items():
            between = mine is not None and mine.memory.version < left.memory.version < item.memory.version
            pair = frozenset((left.of, item.of))
            if other != number and between and len(pair) == 2 and (item.slot, pair) not in self._in_turn:
                self._in_turn.add((item.slot, pair))
                self._tell(thread, watch, number, left, item, "in turn")
        item.tensor = None
        known[number] = item

    def _states(self, state, parameters):
        states, bare = contents.by_identity(state), self._observer.read.bare
        for parameter, owner in parameters:
            for key, tensor in contents.items(states.get(id(parameter))):
                if issubclass(type(tensor), self._tensor) and bare(tensor).numel() > 1:  # all parameters may share a count
                    yield parameter, tensor, owner.place, "state:%s.%s" % (owner.name, key)

    def _items(self, tensors):
        """@return the _Items of those (parameter, tensor or None, place, slot) whose memory can be read and is no smaller than
        the tensor."""
        read = self._observer.read
        skipped, items, seen = read.skipped, [], set()
        for parameter, tensor, place, slot in tensors:
            memory = read(tensor) if tensor is not None and (id(parameter), slot) not in seen else None
            if memory is None:
                continue
            seen.add((id(parameter), slot))
            span = values.span_bytes(memory)
            if span != 0 and span >= values.element_bytes(memory):
                items.append(_Item(id(parameter), tensor, place, slot, memory, memory.data + span))
        read.skipped = skipped
        return items

    def _tell(self, thread, watch, number, first, second, word):
        """Records a pair, once per word, up to a limit per optimizer."""
        key = first.of, first.slot, second.of, second.slot, word
        if key in watch.told or len(watch.told) == _MOST_PAIRS:
            return
        watch.told.add(key)
        whole = (first.begin, first.end) == (second.begin, second.end)
        shared = min(first.end, second.end) - max(first.begin, second.begin)
        thread.batch.event_fact(
            second.place.id, "shares." + second.slot, "optimizer %d, %d bytes, %s, %s, %s of %s" % (
                number, shared, "whole" if whole else "part", word, first.slot, first.place.name))


def _pairs(items):
    """@return [(first, second)] of the items that share an element, in the optimizer's order."""
    return [(items[first], items[second]) for first, second in values.pairs([one.memory for one in items])]

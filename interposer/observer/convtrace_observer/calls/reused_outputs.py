"""Finds outputs of a custom op that a later call of the op overwrites before they are read.

An op may return its own buffer as long as each output is dead when the next call begins. A violation shows in autograd's
graph, whose nodes are numbered in the order in which they are made: a node that takes the output of a call, and was made
after a later call whose output lies in the same memory, has read the later call's output. The graph is searched when a
backward pass begins, and only if two calls of a step returned the same memory.
"""
import _thread
import collections
import itertools
import math

from ..base import contents, nodes, values

_MOST_CALLS = 1 << 12  # of a step
_MOST_NODES = 1 << 14  # of a graph
_MOST_PARTS = 64  # parts of one storage with which the next is compared
_MOST_TOLD = 16  # of a step
_MOST_PAIRS = 64  # of gradients of one call
_MOST_COMMON = 8  # of a pair of gradients

# Nodes of views: reading their output reads the memory of their input.
VIEWS = frozenset(name + "Backward" + version for version in "01" for name in (
    "Alias", "AsStrided", "Detach", "Diagonal", "Expand", "MovedimInt", "Narrow", "Permute", "ReshapeAlias", "Select", "Slice",
    "Split", "SplitWithSizes", "Squeeze", "T", "Transpose", "Unbind", "Unfold", "UnsafeSplit", "UnsafeView", "Unsqueeze",
    "View", "ViewAs"))

# An output of an op. `node`: the one that made it. `position`: among the op's outputs of this slot in the step. `begin`, `end`:
# its first byte and the one after its last; equal if it lies in memory of an input. `place`: module and call.
_Output = collections.namedtuple("_Output", "node position begin end place")


class ReusedOutputs:
    def __init__(self, observer, torch):
        self._observer, self._nodes = observer, nodes.Nodes(torch)
        self._step = -1
        self._outputs = {}  # (op, slot) -> [_Output], of the step
        self._calls = 0
        self._by_storage = {}  # (op, slot, storage) -> [(first byte, the one after the last)]
        self._begins = set()  # (op, slot, first byte)
        self._reused = set()  # keys of self._outputs with two outputs that share bytes
        self._threads = set()  # each thread numbers its own nodes

    def see(self, thread, op, taken, given):
        """Notes the outputs of a call that took the tensors `taken` and returned `given`. Must run inside `with
        read.unobserved()`."""
        observer = self._observer
        if self._step != observer.step or self._calls == _MOST_CALLS:
            self._step, self._calls = observer.step, 0
            self._outputs, self._by_storage, self._begins, self._reused = {}, {}, set(), set()
            self._threads.clear()
        self._calls += 1
        self._threads.add(_thread.get_ident())
        read, place = observer.read, thread.place()
        for index, tensor in enumerate(given):
            value = read.again(tensor)
            if value is None:
                continue
            slot, begin, end = "output:%d" % index, value.data, value.data + values.span_bytes(value)
            if begin != end and self._is_reused(op, slot, value.storage, begin, end, tensor):
                if any(read.storage_of(one) == value.storage for one in taken):
                    end = begin
                else:
                    self._reused.add((op, slot))
            known, node = self._outputs.setdefault((op, slot), []), tensor.grad_fn
            known.append(_Output(None if node is None else self._key(node), len(known), begin, end, place))

    def _is_reused(self, op, slot, storage, begin, end, tensor):
        """@return whether an earlier output lies in the same memory. A storage's number is never reused. The same address in
        two storages is the same memory if the storages only borrow it."""
        key, address = (op, slot, storage), (op, slot, begin)
        there = self._by_storage.get(key)
        if there is None:
            reused = address in self._begins and self._observer.read.borrows(tensor)
            self._by_storage[key] = [(begin, end)]
            self._begins.add(address)
            return reused
        reused = any(first < end and begin < last for first, last in there[-_MOST_PARTS:])
        there.append((begin, end))
        return reused

    def any(self):
        return bool(self._reused) and self._step == self._observer.step and len(self._threads) == 1

    def _key(self, node):
        return self._nodes.name(node), self._nodes.number(node)

    def tell(self, thread, structure):
        """Records outputs that were overwritten and then read. `structure`: the tensors that a backward pass starts from."""
        makers = {one.node: (key, one) for key in self._reused for one in self._outputs[key] if one.node is not None}
        told = 0
        for reader, maker in self._readers(structure, makers):
            (op, slot), output = makers[maker]
            for later in itertools.islice(self._outputs[op, slot], output.position + 1, None):
                if later.node is not None and later.node[1] >= reader[1]:
                    break
                # A part of it may have been left as it was: an op that appends to a buffer.
                same = output.begin == later.begin and output.end == later.end
                if same and later.node is not None and output.node[1] < later.node[1]:
                    scope, call = output.place
                    thread.batch.event_fact(scope, "reused." + op, "%s, %d, %d, %d, %s" % (
                        slot, output.position, later.position, call, reader[0]))
                    told += 1
                    break
            if told == _MOST_TOLD:
                break
        self._reused = set()

    def _readers(self, structure, makers):
        """@return [(name and number of a node that reads, the maker of its input)], each maker with its last reader."""
        waiting = [tensor.grad_fn for tensor in self._observer.read.tensors(structure) if tensor.grad_fn is not None]
        nodes, seen, found = self._nodes, {}, {}
        while waiting and len(seen) < _MOST_NODES:
            node = waiting.pop()
            if node in seen:
                continue
            seen[node] = True
            name = nodes.name(node)
            for child, _ in nodes.next(node):
                if child is None:
                    continue
                waiting.append(child)
                if name in VIEWS:
                    continue
                base = child
                while nodes.name(base) in VIEWS and nodes.next(base) and nodes.next(base)[0][0] is not None:
                    base = nodes.next(base)[0][0]
                key = self._key(base)
                if key in makers:
                    reader = name, nodes.number(node)
                    if key not in found or found[key][1] < reader[1]:
                        found[key] = reader
        return [(reader, maker) for maker, reader in found.items()]


class WaitingGradients:
    """Finds gradients that a backward returns in a tensor (or a view of all of it) that it has returned before and that
    autograd still holds for a node that has not run. They are recognized by C++'s count of references to the tensor, which
    is larger than when it was first returned.

    An op that wraps one array into a tensor of its own in each call is recognized by the receiver: it waits for the gradients of
    all calls that it is to sum. The storage of the first one still lives, unless another gradient was added to it before."""

    def __init__(self, observer, nodes):
        self._observer, self._nodes = observer, nodes
        self._common = CommonGradients(observer)
        self._step, self._told = -1, 0
        self._counts = collections.Counter()  # (op, slot) -> calls in this step
        # id of a tensor -> (op, slot, storage, whether in a view), references at first, position and place of the last call
        self._given = {}
        self._borrowed = {}  # (op, slot, address, receiver, pass) -> (weak reference to a storage, its number, position, place)

    def see(self, thread, op, taken, given, receivers, saved):
        """Examines the result of a backward that took `taken`, in which a gradient may be missing, and returned `given`, with
        None for those to ignore. `receivers`: (node, number of its input) of each receiver, empty if unknown. `saved`: returns
        the tensors that the op has saved. Must run inside `with read.unobserved()`."""
        observer, read = self._observer, self._observer.read
        if self._step != observer.step:
            self._step, self._told = observer.step, 0
            self._counts.clear()
            self._given.clear()
            self._borrowed.clear()
        results = []
        for index, tensor in enumerate(given):
            value = None if tensor is None else read.again(tensor)
            if value is None:
                continue
            slot = "grad_input:%d" % index
            position = self._counts[op, slot]
            self._counts[op, slot] += 1
            results.append((index, value, position))
            if index < len(receivers) and read.borrows(tensor):
                self._see_borrowed(thread, op, slot, tensor, value, position, receivers[index])
            base = read.bare(tensor)._base
            whole = base is not None and read.bare(base).numel() == read.bare(tensor).numel()
            held = base if whole else tensor  # each view of a base refers to it
            count = getattr(read.bare(held), "_use_count", None)  # an older torch does not say
            if count is None or len(self._given) == _MOST_CALLS or any(
                    one is held or read.bare(one)._base is held for one in read.tensors(taken)):
                continue
            known, references = (op, slot, value.storage, whole), count()
            before = self._given.get(id(held))
            if before is None or before[0] != known:
                self._given[id(held)] = known, references, position, thread.place()
                continue
            _, first, earlier, (scope, call) = before
            self._given[id(held)] = known, first, position, thread.place()
            if references > first and index < len(receivers):
                self._tell(thread, op, slot, (earlier, position), (scope, call), receivers[index][0])
        if len(results) > 1 and receivers:
            self._common.see(thread, op, taken, results, receivers, saved)


    def _see_borrowed(self, thread, op, slot, tensor, value, position, receiver):
        node, index = receiver
        known = _receiver_of(node, index)
        known = known if type(known) is int else (self._nodes.name(node), self._nodes.number(node), index)
        key = op, slot, value.data, known, self._nodes.graph_task()
        storage = self._observer.read.bare(tensor).untyped_storage()
        before = self._borrowed.get(key)
        if before is None and len(self._borrowed) == _MOST_CALLS:
            return
        self._borrowed[key] = values.WeakStorage(storage), value.storage, position, thread.place()
        if before is not None and before[1] != value.storage and before[0]() is not None:
            self._tell(thread, op, slot, (before[2], position), before[3], node)

    def _tell(self, thread, op, slot, positions, place, receiver):
        """Records that a gradient waited when a later one was returned in its memory. `place`: module and call of the first."""
        if self._told < _MOST_TOLD:
            self._told += 1
            scope, call = place
            thread.batch.event_fact(scope, "reused." + op, "%s, %d, %d, %d, %s" % (slot, *positions, call, self._nodes.name(receiver)))


class CommonGradients:
    """Finds gradients of one call of a backward that share memory. Many ops return one gradient for several inputs, so a pair
    is recorded only if the op keeps that memory, made two storages of it, or each gradient also has memory of its own.
    `convtrace check` decides whether one was written over another."""

    def __init__(self, observer):
        self._observer = observer
        self._storages = {}  # (op, positions of a pair) -> the storage that it had in the last call
        self._told = collections.Counter()  # of the same

    def see(self, thread, op, taken, results, receivers, saved):
        """Examines the results of a backward. `results`: [(index, values.Memory, position)]; the rest as in
        WaitingGradients.see()."""
        pairs = values.pairs([value for _, value, _ in results])[:_MOST_PAIRS]
        if not pairs:
            return
        read = self._observer.read
        passed_on = [value for value in map(read.again, read.tensors(taken)) if value is not None]
        for (first, one, position), (second, other, _) in ((results[one], results[other]) for one, other in pairs):
            pair = op, first, second
            if self._told[pair] == _MOST_COMMON:
                continue
            before = self._storages.get(pair)
            if before is not None or len(self._storages) < _MOST_CALLS:
                self._storages[pair] = one.storage
            to = [_receiver_of(*receivers[index]) for index in (first, second)]
            if to[0] == to[1] or any(values.share(one, value) for value in passed_on):
                continue
            extent = _extent(one, other)
            word = "foreign" if one.storage != other.storage else "kept" if one.storage == before else "new"
            # Two windows of a buffer with as many elements as the op's own gradient belong to an overlap-add.
            elements = one.storage_bytes // values.ELEMENT_BYTES[one.dtype]
            if (any(elements == math.prod(value.dims[:value.rank]) for value in passed_on) if extent == "across"
                    else word == "new"):
                continue
            self._told[pair] += 1
            needed = {_receiver_of(read.bare(tensor).grad_fn, read.bare(tensor).output_nr, tensor) for tensor in saved()}
            thread.batch.event_fact(thread.place()[0], "common." + op, "grad_input:%d, grad_input:%d, %d, %s, %s, %s" % (
                first, second, position, extent, word, "needed" if needed.intersection(to) else "unknown"))


def _receiver_of(node, index, leaf=None):
    """@return the receiver of a gradient: a node and the number of its input, or the id of a leaf."""
    if node is not None and contents.name_of(type(node)) == "AccumulateGrad":
        node, leaf = None, node.variable
    return id(leaf) if node is None else (node, index)


def _extent(one, other):
    """@return how two tensors that share memory overlap: "whole", "inside" (one contains the other) or "across" (each also has
    memory of its own)."""
    (begin, end), (first, last) = ((value.data, value.data + values.span_bytes(value)) for value in (one, other))
    if (begin, end) == (first, last):
        return "whole"
    return "inside" if (begin - first) * (end - last) <= 0 else "across"

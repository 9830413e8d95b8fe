"""Records the operands of calls in compiled regions, in steps whose values are wanted.

An operation that computes what a module returns (the matrix product of a linear layer) is recorded as the output of that
module, too, as in a run that is not compiled; what its counterpart in the backward pass takes, as the output's gradient.
"""
import math
import re

from ..base import engine, spent
from . import wrapper_source

# Operations that compute what a node of Dynamo's graph stands for, where they take all that the node takes.
_WHOLE = frozenset("aten::" + name for name in ("addmm", "baddbmm", "bias_addmm", "bmm", "convolution", "mm"))

_CONVOLUTION_BACKWARD = "aten::convolution_backward"
_FRAME = re.compile(r'File "(.+)", line (\d+), in ')


class _Site:
    """A call as it is recorded. `modules`: (place, visit, visits of a region's call) of the modules around it, outermost
    first. `ends`: how many of them, from the innermost, return its first output, with extents `shape`; in the backward
    pass, how many have its first input as the gradient of what they return."""

    __slots__ = ("op", "phase", "inputs", "outputs", "modules", "ends", "shape", "step", "count")


class Calls:
    def __init__(self, observer):
        self._observer = observer
        self._sites = []
        self._told = set()

    def add(self, call, made_of, graph, is_backward, with_inputs):
        """@return the number by which before() and after() are told of the call, what it takes and what it writes, as
        (name, expression). Without inputs only the output of a module around it is taken where it is one, and only the
        input that is the gradient of one."""
        observer, node = self._observer, made_of.of[call]
        site = _Site()
        site.op = observer.port.intern(call.op)
        site.phase = engine.BACKWARD if is_backward else None
        site.modules = [(self._place(number, path), visit, graph.visits.get(number, 1))
                        for number, path, visit in (node.modules if node is not None else ())]
        site.modules = site.modules or [(observer.names.place(""), 0, 1)]
        site.ends, site.shape = 0, None
        if (_takes_gradient if is_backward else _computes)(call, node, made_of):
            site.ends, site.shape = node.ends, node.shape
        inputs, outputs = made_of.read[call], call.outputs
        if not with_inputs:
            inputs = inputs[:1] if is_backward and site.ends else []
        site.inputs = [observer.modules.slot("input", name) for name, _ in inputs if with_inputs]
        site.outputs = [observer.modules.slot("output", name) for name, _ in outputs
                        if with_inputs or is_backward or not site.ends]
        site.step, site.count = -1, 0
        self._tell(call, site, node.trace if node is not None and node.trace else call.trace)
        self._sites.append(site)
        return len(self._sites) - 1, inputs, outputs

    def _place(self, number, path):
        names = self._observer.names
        entry = names.entries.get(number)
        return entry.place if entry is not None else names.place(path)

    def _tell(self, call, site, trace):
        name = "compiled.%s.%s" % (site.modules[-1][0].name, call.op)
        thread = self._observer.threads.state
        if name not in self._told and self._observer.begin(thread):
            self._told.add(name)
            thread.batch.fact(name, " ".join((call.kernel, "[%s]" % ", ".join(call.nodes), *self._line(trace))))

    def _line(self, trace):
        """Yields "model.py:12" of a stack trace, innermost."""
        for path, line in _FRAME.findall(trace)[-1:]:
            yield self._observer.module_facts.code.place(path, int(line))

    def before(self, number, operands):
        """In the generated code, before a call. `operands`: what it takes; all but tensors is left out."""
        if self._observer.capture:
            site = self._site(number)
            self._record(self._observer.threads.state, site, site.inputs, operands, engine.HASH)

    def after(self, number, operands):
        """In the generated code, behind a call. `operands`: what it has written."""
        if self._observer.capture:
            site = self._site(number)
            self._record(self._observer.threads.state, site, site.outputs, operands, self._observer.full)
            site.count += 1

    def _site(self, number):
        site = self._sites[number]
        if site.step != self._observer.step:
            site.step, site.count = self._observer.step, 0
        return site

    @spent.sampled
    def _record(self, thread, site, slots, operands, capture):
        observer = self._observer
        try:
            phase = thread.slot[1] if site.phase is None else site.phase
            place, call = _call_of(site, site.modules[-1])
            with observer.read.unobserved():
                for slot, operand in zip(slots, operands):
                    for tensor in observer.read.tensors(operand):
                        observer.pack(thread.batch, phase, capture, place.id, call, slot, tensor, site.op)
                if site.ends and slots is (site.inputs if phase == engine.BACKWARD else site.outputs):
                    self._returned(thread, phase, site, operands[0])
            observer.submit(thread)
        except Exception as error:
            observer.failed("compiled call", error)

    def _returned(self, thread, phase, site, tensor):
        observer = self._observer
        slot = observer.modules.slot("grad_output" if phase == engine.BACKWARD else "output", 0)
        value = _shaped(observer.read(tensor), site.shape)
        for module in reversed(site.modules[-site.ends:]):
            place, call = _call_of(site, module)
            # The observer sees itself what the module returns that the region is in.
            if value is not None and not (thread.entry is not None and thread.entry.place is place):
                thread.batch.tensor(phase, observer.full, place.id, call, slot, 0, value)


def _call_of(site, module):
    place, visit, visits = module
    return place, site.count * visits + visit


def _computes(call, node, made_of):
    """Whether the call's output is the value of the node."""
    if call.op not in _WHOLE or node is None or node.shape is None or not node.arguments:
        return False
    return node.arguments <= {made_of.numbers.get(name) for name in _variables(call)}


def _takes_gradient(call, node, made_of):
    """Whether the call's first input is the gradient of the node's value: it is multiplied by what the node multiplies with."""
    if node is None or node.shape is None:
        return False
    factors = [made_of.numbers.get(name) for name in _variables(call)[1:2]]
    return call.op == _CONVOLUTION_BACKWARD or call.op in _WHOLE and bool(node.arguments.intersection(factors))


def _variables(call):
    return [wrapper_source.variable(expression) for _, expression in call.inputs]


def _shaped(value, shape):
    """A value that has other extents than the module's output, in the same order of elements; None if it has not."""
    if value is None or value.dims[:value.rank] == shape:
        return value
    dense = _strides(value.dims[:value.rank])
    if math.prod(shape) != math.prod(value.dims[:value.rank]) or value.dims[value.rank:] != dense:
        return None
    return value._replace(rank=len(shape), dims=(*shape, *_strides(shape)))


def _strides(shape):
    """Strides of a tensor without gaps whose last dimension is the fastest."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))

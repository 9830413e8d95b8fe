"""Records the operands of calls in compiled regions, in steps whose values are wanted.

An operation that computes the result of a module (the matrix product of a linear layer) is also recorded as the output of
that module, as in a run that is not compiled; the input of its counterpart in the backward pass, as the output's gradient.
"""
import math
import re

from ..base import engine, spent
from . import wrapper_source

# Operations that compute the value of a node of Dynamo's graph if they take all its arguments.
_WHOLE = frozenset("aten::" + name for name in ("addmm", "baddbmm", "bias_addmm", "bmm", "convolution", "mm"))

_CONVOLUTION_BACKWARD = "aten::convolution_backward"
_MAX_MADE = 4000  # characters of a fact
_FRAME = re.compile(r'File "(.+)", line (\d+), in ')


class Region:
    """The state that the forward and the backward code of a region share. `number`: Dynamo's number of its compilation, "0/1",
    or "". `home`: name of the module that was running when it was compiled, or None. `waiting`: the number of runs of the
    forward code in this step whose backward pass is still to come; `last`: the run, if there is exactly one. `roots`:
    references to the modules that a run outside of any module calls; `are_called`: the calls of the next run are already
    reported; `trains`: the region has a backward pass."""

    __slots__ = ("number", "home", "waiting", "last", "step", "roots", "are_called", "trains")

    def __init__(self, number, home, roots=(), trains=False):
        self.number, self.home, self.waiting, self.last, self.step = number, home, 0, None, -1
        self.roots, self.are_called, self.trains = roots, True, trains


class _Run:
    """One run of a region's code. `here`: name of the module that it runs in, which differs from `home` if modules share the
    region. `numbers`: id of a module's place -> number of its first call in the run."""

    __slots__ = ("here", "numbers")

    def __init__(self, here):
        self.here, self.numbers = here, {}


class _Site:
    """A call as it is recorded. `is_first`: it is the first of its function. `modules`: (name, visit, visits in a run) of the
    modules around it, outermost first. `ends`: how many of them, from the innermost, return its first output, with extents
    `shape`; in the backward pass, for how many its first input is the gradient of their output."""

    __slots__ = ("region", "is_backward", "is_first", "op", "inputs", "outputs", "modules", "ends", "shape")


class Calls:
    def __init__(self, observer):
        self._observer = observer
        self._sites, self._regions = [], []
        self._told = {}  # "SCOPE.OP" -> the text of which inputs each output depends on
        self._running = {}  # (region, whether backward) -> _Run, or None for a run that is not recorded
        self._counted, self._step = {}, -1  # (id of a place, phase) -> calls in this step

    def forget(self):
        """Resets the state in a forked child."""
        for known in (self._sites, self._regions, self._told, self._running, self._counted):
            known.clear()

    def add(self, region, call, made_of, graph, names, is_backward, is_first, with_inputs):
        """Adds a call of the generated code.
        @param names  the modules' names by their addresses
        @param with_inputs  False: of operands that belong to a module around the call only the module's output is recorded,
        or its gradient
        @return the call's number for before() and after(), and its inputs and outputs as (name, expression); of a custom op the
        number for enter() alone"""
        observer, node = self._observer, made_of.of[call]
        site = _Site()
        site.region, site.is_backward, site.is_first = region, is_backward, is_first
        site.op = observer.port.intern(call.op)
        site.modules = [(names.get(number, path), visit, graph.visits.get(number, 1))
                        for number, path, visit in (node.modules if node is not None else ())]
        site.modules = site.modules or [(region.home or "", 0, 1)]
        inputs, outputs = made_of.read[call], call.outputs
        site.ends, site.shape = 0, None
        if (_takes_gradient(call, node, made_of) and inputs[:1] == call.inputs[:1]) if is_backward else _computes(call, node, made_of):
            site.ends, site.shape = node.ends, node.shape
        if not with_inputs:
            inputs = inputs[:1] if is_backward and site.ends else []
        if call.kind == wrapper_source.CUSTOM:
            inputs = outputs = ()
        site.inputs = tuple(observer.modules.slot("input", name) for name, _ in inputs if with_inputs)
        site.outputs = tuple(observer.modules.slot("output", name) for name, _ in outputs
                             if with_inputs or is_backward or not site.ends)
        self._tell(call, site, node.trace if node is not None and node.trace else call.trace)
        self._sites.append(site)
        number = len(self._sites) - 1
        return number if call.kind == wrapper_source.CUSTOM else (number, inputs, outputs)

    def _tell(self, call, site, trace):
        thread, place = self._observer.threads.state, "%s.%s" % (site.modules[-1][0], call.op)
        made = ";".join("%s<%s" % (output, ",".join(inputs)) for output, inputs in call.made.items())[:_MAX_MADE]
        if call.dropped and self._observer.begin(thread):
            thread.batch.fact("compiled_dropped." + place, "%s %s %s" % (call.kernel, *call.dropped))
        if self._told.get(place) == made or not self._observer.begin(thread):
            return
        if place not in self._told:
            self._told[place] = made
            words = [call.kernel, "[%s]" % ", ".join(call.nodes), *self._line(trace)]
            if site.region.number:
                words.append("region %s %s" % (site.region.number, "backward" if site.is_backward else "forward"))
            thread.batch.fact("compiled." + place, " ".join(filter(None, words)))
        else:
            self._told[place] = made = ""  # two kernels have this name
        thread.batch.fact("compiled_made." + place, made)

    def _line(self, trace):
        """Yields the innermost line of a stack trace, as "model.py:12", if it has one."""
        for path, line in _FRAME.findall(trace)[-1:]:
            yield self._observer.module_facts.code.place(path, int(line))

    def add_run(self, region):
        """@return the number that begins() gets for a run of the region's forward code."""
        self._regions.append(region)
        return len(self._regions) - 1

    def begins(self, number):
        """Reports the roots that a compiled function calls. The generated code calls this when the function begins; inside
        the call of another module they are no roots."""
        observer = self._observer
        try:
            region, thread = self._regions[number], observer.threads.state
            if not observer.active or thread.entry is not None or observer.modules.in_backward():
                return
            if region.are_called:
                region.are_called = False
                return
            for root in region.roots:
                module = root()
                if module is not None:
                    observer.modules.find(thread, module, observer.names.entry(module), (), {}, region.trains)
        except Exception as error:
            observer.failed("compiled region", error)

    def before(self, number, operands):
        """Records the inputs of a call. The generated code calls this before it. `operands`: the inputs, of which only tensors
        are recorded."""
        if self._observer.capture:
            self._record(self._observer.threads.state, number, operands, False)

    def after(self, number, operands):
        """Records the outputs of a call. The generated code calls this after it. `operands`: the outputs."""
        if self._observer.capture:
            self._record(self._observer.threads.state, number, operands, True)

    def enter(self, number):
        """Enters the module of a custom op, which is recorded when it is called. The generated code calls this before it, and
        leave() behind it, in steps whose values are wanted.
        @return the word for leave(); None if the place stays"""
        try:
            observer, site = self._observer, self._sites[number]
            thread = observer.threads.state
            if not observer.capture:
                return None
            if site.is_first:
                self._begin(thread, site)
            run = self._running.get((site.region, site.is_backward))
            if run is None:
                return None
            place, call = self._call(site, run, engine.BACKWARD if site.is_backward else thread.slot[1], -1)
            before, thread.slot[0] = thread.slot[0], call << 32 | place.id
            return before
        except Exception as error:
            self._observer.failed("compiled call", error)
            return None

    def leave(self, before):
        """Returns from enter() to where the region runs."""
        if before is not None:
            self._observer.threads.state.slot[0] = before

    @spent.sampled
    def _record(self, thread, number, operands, is_output):
        observer = self._observer
        try:
            site = self._sites[number]
            if site.is_first and (not is_output or not site.inputs and not (site.is_backward and site.ends)):
                self._begin(thread, site)
            run = self._running.get((site.region, site.is_backward))
            if run is None:
                return
            phase = engine.BACKWARD if site.is_backward else thread.slot[1]
            slots, capture = (site.outputs, observer.full) if is_output else (site.inputs, engine.HASH)
            place, call = self._call(site, run, phase, -1)
            ends = site.ends and is_output != site.is_backward
            if not ends and observer.hot.operands(thread, phase, capture, place.id, call, slots, operands, site.op):
                return
            with observer.read.unobserved():
                for slot, operand in zip(slots, operands):
                    for tensor in observer.read.tensors(operand):
                        observer.pack(thread.batch, phase, capture, place.id, call, slot, tensor, site.op)
                if ends:
                    self._returned(thread, phase, site, run, operands[0])
            observer.submit(thread)
        except Exception as error:
            observer.failed("compiled call", error)

    def _begin(self, thread, site):
        """Notes the beginning of a run of a region's code. A backward pass is matched with its forward pass only if no other
        one was waiting."""
        region, step = site.region, self._observer.step
        if region.step != step:
            region.step, region.waiting = step, 0
        if site.is_backward:
            region.waiting -= 1
            self._running[region, True] = region.last
            return
        run = self._running[region, False] = _Run(thread.entry.place.name if thread.entry is not None else region.home)
        region.waiting += 1
        region.last = run if region.waiting == 1 else None

    def _call(self, site, run, phase, index):
        """@return (place, number of the call) of one of the modules around a call."""
        name, visit, visits = site.modules[index]
        if run.here != site.region.home:
            name = _moved(name, site.region.home, run.here)
        place = self._observer.names.place(name)
        first = run.numbers.get(place.id)
        if first is None:
            if self._step != self._observer.step:
                self._step = self._observer.step
                self._counted.clear()
            first = run.numbers[place.id] = self._counted.get((place.id, phase), 0)
            self._counted[place.id, phase] = first + visits
        return place, first + visit

    def _returned(self, thread, phase, site, run, tensor):
        observer = self._observer
        slot = observer.modules.slot("grad_output" if site.is_backward else "output", 0)
        value = _shaped(observer.read(tensor), site.shape)
        for index in range(1, site.ends + 1):
            place, call = self._call(site, run, phase, -index)
            # The output of the module that contains the region is recorded by the wrapper of its call.
            if value is not None and place.name != run.here:
                thread.batch.tensor(phase, observer.full, place.id, call, slot, 0, value)


def _moved(name, home, here):
    """@return a module's name in a run of the region inside another module. `home`: the module of the first run; `here`: that
    of this run."""
    if home is None:
        return name or here
    if name != home and not name.startswith(home + "." if home else ""):
        return name
    return (here + "." + name[len(home):].lstrip(".")).strip(".")


def _computes(call, node, made_of):
    """@return whether the call's output is the value of the node."""
    if call.op not in _WHOLE or node is None or node.shape is None or not node.arguments:
        return False
    return node.arguments <= {made_of.numbers.get(name) for name in _variables(call)}


def _takes_gradient(call, node, made_of):
    """@return whether the call's first input is the gradient of the node's value: a product has the same second factor as the
    node."""
    if node is None or node.shape is None:
        return False
    if call.op == _CONVOLUTION_BACKWARD:
        return "conv" in node.does
    factors = [made_of.numbers.get(name) for name in _variables(call)[1:2]]
    return call.op in _WHOLE and bool(node.arguments.intersection(factors))


def _variables(call):
    return [wrapper_source.variable(expression) for _, expression in call.inputs]


def _shaped(value, shape):
    """@return a value with the extents of the module's output, if its elements have the same order; else None."""
    if value is None:
        return None
    extents, strides = value.dims[:value.rank], value.dims[value.rank:]
    if extents == shape and value.rank > 2:
        return value  # channels may be last
    if math.prod(shape) != math.prod(extents) or strides != _strides(extents):
        return None
    return value._replace(rank=len(shape), dims=(*shape, *_strides(shape)))


def _strides(shape):
    """@return the strides of a contiguous tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))

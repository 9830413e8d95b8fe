"""Records custom ops: their inputs, their outputs, and the memory of these.

Custom ops are torch.library ops of other namespaces than torch's own, and autograd.Functions of other
packages than torch, forward and backward. Inputs are hashed before the op runs. The statistics of its
outputs are taken at once, so that they can be compared with what a later consumer reads.
"""
import functools
import weakref

from ..base import contents, engine, nodes, replaced, scopes, signals, values
from . import added_gradients, kept

# Namespaces that torch itself registers; tests/python compares this with the installed torch.
TORCH_NAMESPACES = frozenset((
    "_C", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_test", "_native", "_native_aot",
    "_quantized", "_test", "aot_autograd", "aten", "bucketing", "c10d", "c10d_functional", "coor", "cuda",
    "cudnn", "debug_mode_ops", "debugprims", "dist_inductor", "export", "flex_gemm", "flex_lib", "fsdp",
    "higher_order", "inductor", "inductor_prims", "mempool", "mkl", "mkldnn", "mkldnn_prepacked", "nccl",
    "onednn", "onnx", "onnx_symbolic", "prepacked", "prim", "prims", "profiler", "quantization", "quantized",
    "quantized_decomposed", "rngprims", "sparse", "static_runtime", "streams", "symm_mem",
    "tensorexpr", "torch_attn", "xnnpack"))


# Positions of fields in a values.Memory.
_VERSION, _STORAGE, _STREAM = 4, 6, 9

_MAX_PLACES = 1 << 16  # of nodes of autograd.Functions
_NO_STATES = {}
_NONE = frozenset()
_NOTHING = _NONE, _NONE


class _Tag:
    """The recorded properties of an op. `writes`: positions and names of the arguments that its schema declares as
    written. `backward`: the tag of a torch.library op's gradient, else None."""

    __slots__ = ("name", "input", "output", "phase", "declared_alias", "schema_known", "writes", "backward", "is_told")

    def __init__(self, name, declared_alias, schema_known, writes=()):
        self.name = name
        self.declared_alias, self.schema_known, self.writes = declared_alias, schema_known, writes
        self.input, self.output, self.phase = "input", "output", None
        self.backward = None
        self.is_told = False


def _backward_tag(name):
    tag = _Tag(name + "Backward", False, False)
    tag.input, tag.output, tag.phase = "grad_output", "grad_input", engine.BACKWARD
    return tag


class _Node:
    """The node of an autograd.Function's call. `number`: the node's. `place`: the slot word of the module call around it.
    `tag`: that of its backward. `call`: the number of the op's call in that module call if its kept tensors were recorded,
    else None. `states`: the result of Kept.states()."""

    __slots__ = ("number", "place", "tag", "call", "states")

    def __init__(self, number, place, tag, call, states):
        self.number, self.place, self.tag, self.call, self.states = number, place, tag, call, states


class _Tags:
    """The tags of op objects, by identity: hashing an op runs Python code, and an attribute on it would be
    copied and pickled with it.

    `mark(target)` returns an object that each target has for itself. It is kept, so that no later one is taken for it."""

    def __init__(self, make, mark):
        self._make, self._mark = make, mark
        self._known = {}

    def of(self, target):
        """@return the tag of an op; None for an op of torch's own, or if it cannot be determined."""
        known = self._known.get(id(target))
        try:
            mark = self._mark(target)
            if known is not None and known[0] is mark:
                return known[1]
            tag = self._make(target)
            self._known[id(target)] = mark, tag
            return tag
        except Exception as error:
            signals.let_pass(error)
            return None


class CustomOps:
    def __init__(self, observer, torch):
        self._observer = observer
        self._torch = torch
        self._replaced = replaced.Replaced()
        self._library_tags = _Tags(_library_tag, _operator_of)
        self._function_tags = _Tags(_function_tags, weakref.ref)  # a class's own reference, which its base has already made
        self._nodes = {}  # id of an autograd.Function's node -> _Node
        self._graph = nodes.Nodes(torch)
        self._kept = kept.Kept(torch, observer, self._graph)
        self._added = added_gradients.AddedGradients(observer, torch, self._graph)
        self._modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)

    def install(self):
        surround = functools.partial(self._replaced.surround, self._observer)
        for name in "OpOverloadPacket", "OpOverload":
            surround(getattr(self._torch._ops, name, None), "__call__", self._library_begins, self._ended)
        function = self._torch.autograd.Function
        base = getattr(self._torch.autograd.function, "_SingleLevelFunction", None)
        if base is not None and isinstance(vars(function).get("apply"), classmethod):  # it calls that of its base
            surround(base, "apply", self._function_begins, self._function_ended, vars(self._torch._C._FunctionBase)["apply"])
        else:  # of C since torch 2.15
            surround(function, "apply", self._function_begins, self._function_ended)
        surround(getattr(self._torch._C._autograd, "SavedTensor", None), "register_hooks",
                 lambda args, kwargs: self._kept.packs_single())
        surround(getattr(self._torch.autograd.function, "BackwardCFunction", None), "apply",
                 self._backward_begins, self._backward_ended)

    def remove(self):
        self._replaced.put_back()

    def _is_off(self):
        observer = self._observer
        return not observer.active or observer.is_compiling() or observer.is_tracing()

    def _library_begins(self, args, kwargs):
        tag = None if self._is_off() else self._library_tags.of(args[0])
        if tag is None:
            return None
        around = self._observer.threads.state.op
        if around is not None and around.name == tag.name:
            return None  # a dispatch mode, as of the first run of a compiled region, passes on the call that is being recorded
        return self._begin(tag, args[1:], kwargs or {})

    def _function_begins(self, args, kwargs):
        if self._is_off():
            return None
        tags = self._function_tags.of(args[0])
        library_op = self._observer.threads.state.op  # this is its autograd registration: one op, not two
        if tags is None and library_op is None:
            return None
        arguments = args[1:], kwargs or {}
        if tags is not None and not tags[0].is_told:
            self._tell_code(tags[0], args[0])
        begun = self._begin(tags[0], *arguments) if library_op is None else None
        return begun, arguments, tags or (library_op, library_op.backward)

    def _tell_code(self, tag, function):
        """Records the hash of an autograd.Function's code at its first call."""
        observer = self._observer
        tag.is_told = True
        try:
            thread = observer.threads.state
            if observer.begin(thread):
                for name, value in observer.module_facts.code.of_class(function):
                    thread.batch.fact(name, value)
        except Exception as error:
            observer.failed("code of a custom op", error)

    def _function_ended(self, state, result, raised):
        begun, arguments, tags = state
        if begun is not None:
            self._ended(begun, result, raised)
        if not raised:
            self._remember(result, arguments, *tags)

    def _backward_begins(self, args, kwargs):
        if self._is_off():
            return None
        slot = self._observer.threads.state.slot
        before, begun = slot[0], None
        try:
            tags, node = self._function_tags.of(args[0]._forward_cls), self._node_of(args[0])
            slot[0] = before if node is None else node.place
            tag = tags[1] if tags is not None else node.tag if node is not None else None
            if tag is not None:
                known = node is not None and node.call is not None and not self._is_asked()
                added = self._added.before(self._observer.threads.state, tag, args[0])
                saved = functools.partial(self._kept.saved, args[0]) if known else tuple
                begun = self._begin(tag, args[1:], {}, (args[0], node) if known else None), added, saved
        except BaseException:
            slot[0] = before
            raise
        return slot, before, begun

    def _backward_ended(self, state, result, raised):
        slot, before, begun = state
        try:
            if begun is not None:
                op, added, saved = begun
                thread, _, tag, _, taken, _ = op
                given = _NOTHING if raised else self._added.after(thread, tag, added, taken, result, saved)
                self._ended(op, result, raised, *given)
        finally:
            slot[0] = before

    def _node_of(self, node):
        known = self._nodes.get(id(node))
        return known if known is not None and known.number == self._graph.number(node) else None

    def _remember(self, result, arguments, tag, backward):
        """Notes the module call of an op's node, and records the tensors that the node keeps for its backward. The backward
        belongs to the module that called the op, not to the one whose output gradient came last. A node is recognized by
        its address and by its sequence number in autograd."""
        observer = self._observer
        try:
            with observer.read.unobserved():
                for tensor in observer.read.tensors(result):
                    node = tensor.grad_fn
                    if node is not None and self._graph.is_of_function(node):
                        thread = observer.threads.state
                        call = (self._kept.next_call(tag.name, thread.slot[0])
                                if observer.capture and not self._is_asked(arguments, result) else None)
                        states = _NO_STATES
                        if call is not None:
                            # A buffer on ctx is the module's: its next call may change it, as an average.
                            tensors = [one for one in self._kept.tensors(node) if one[0] != "ctx" or not kept.is_buffer(thread, one[2])
                                       or self._kept.is_renewed(thread, node, *one[1:], arguments[0])]
                            states = self._kept.states(thread, tensors, observer.read.tensors(arguments))
                            self._record_kept(thread, tag, self._phase(thread, tag), tensors, call, states)
                            call = call if tensors else None
                        if len(self._nodes) == _MAX_PLACES:
                            self._nodes.clear()
                        self._nodes[id(node)] = _Node(self._graph.number(node), thread.slot[0], backward, call, states)
                        break
            observer.submit(observer.threads.state)
        except Exception as error:
            observer.failed("custom op", error)

    def _is_asked(self, *structures):
        """@return whether reading a node's saved tensors would run code of the program: a dispatch mode, a subclass."""
        own_modes = 1 if self._observer.threads.state.op_modes else 0
        return self._modes() > own_modes or any(
            not self._observer.read.is_plain(tensor) for tensor in self._observer.read.tensors(structures))

    def _record_kept(self, thread, tag, phase, kept_tensors, number, states=_NO_STATES, kind="%s"):
        """Packs the hash of each tensor. `number`: that of the op's call in this call of the module. `states`: the result of
        Kept.states()."""
        observer = self._observer
        op, (scope, call) = observer.port.intern(tag.name), thread.place()
        for role, name, tensor in kept_tensors:
            value = observer.read(tensor)
            role = states.get(name, role) if role == "saved" else role
            if value is not None:
                slot = observer.modules.slot(kind % role, "%s@%d" % (name, number) if number else name)
                capture = observer.full if role == "saved_buffer" and phase == engine.BACKWARD else engine.HASH
                thread.batch.tensor(phase, capture, scope, call, slot, op, value)

    def _begin(self, tag, args, kwargs, node=None):
        """Records the beginning of an op. `node`: (the node of autograd, its _Node) of a backward whose kept tensors were
        recorded after the forward, else None. @return the argument of _ended()"""
        begun = self._before(tag, args, kwargs, node)
        thread = self._observer.threads.state
        around = thread.op
        if tag.schema_known:
            thread.op = tag
        return thread, around, tag, begun, args, kwargs

    def _ended(self, state, result, raised, given=_NONE, dummies=_NONE):
        """Records the end of an op. `given`: ids of the leaves that a backward has returned a gradient for. `dummies`: ids of
        the returned gradients that are ignored."""
        thread, around, tag, begun, args, kwargs = state
        thread.op = around
        if begun is not None and not raised:
            self._after(tag, begun, args, kwargs, result, given, dummies)

    def _before(self, tag, args, kwargs, node):
        """Hashes the inputs. @return None when not observed, else (operands for the OP message; the argument of
        RepeatedOps.after() or None; numbers of the gradients that have other owners; of the kept tensors to examine after
        the op: number of the call, those with other owners, those of other objects, leaves, states, or None)."""
        observer = self._observer
        try:
            thread = observer.threads.state
            if not observer.begin(thread):
                return None
            capture = engine.HASH if observer.capture else None
            thread.batch.op_begin(self._phase(thread, tag), *thread.place(), observer.port.intern(tag.name))
            shared, kept_shared, watched = (), None, None
            with observer.read.unobserved():
                operands = self._operands(thread, tag, tag.input, (args, kwargs), 0, capture)
                if capture is not None and self._phase(thread, tag) == engine.FORWARD:
                    watched = observer.repeated_ops.before(thread, tag.name, (args, kwargs), len(operands))
                if capture is not None and tag.phase == engine.BACKWARD:
                    shared, kept_shared = self._shared(thread, tag, args, node)
            observer.submit(thread)
            return operands, watched, shared, kept_shared
        except Exception as error:
            observer.failed("custom op", error)
            return None

    def _shared(self, thread, tag, args, node):
        """Records the kept tensors of a backward that is about to run. @return which of its gradients have other owners; and
        (number of the call, kept tensors with other owners, those of other objects, leaves with their counts of writes, states), or
        None."""
        gradients = self._observer.read.tensors(args)
        shared = [index for index, tensor in enumerate(gradients) if self._kept.is_shared_gradient(tensor)]
        if node is None:
            return shared, None
        node, known = node
        number, tensors = known.call, self._kept.tensors(node)
        self._record_kept(thread, tag, tag.phase, tensors, number, known.states)
        saved = [one for one in tensors if one[0] == "saved"]
        # Any other leaf was made by the op in its forward, and the backward may overwrite it.
        leaves = [(one, values.version(one[2])) for one in saved
                  if one[2].is_leaf and (one[2].requires_grad or known.states.get(one[1]) == "saved_buffer")]
        outside = [one for one in tensors if one[0] == "state"]
        return shared, (number, [one for one in saved if self._kept.is_shared_saved(node, one[2])], outside, leaves, known.states)

    def _written(self, leaves, states, given):
        """@return the kept leaves to record after a backward, by kind of slot. Left out is a leaf with a counted write that
        gets no gradient and is no state: a parameter that was updated. A buffer may hold a running average."""
        found = {"%s_after": [], "%s_counted": []}
        for one, version in leaves:
            if values.version(one[2]) == version or id(one[2]) in given:
                found["%s_after"].append(one)
            elif one[1] in states:
                found["%s_counted"].append(one)
        return found

    def _after(self, tag, begun, args, kwargs, result, given, dummies):
        observer = self._observer
        try:
            operands, watched, shared, kept_shared = begun
            thread = observer.threads.state
            capture = observer.full if observer.capture else None
            scope, call = thread.place()
            with observer.read.unobserved():
                if watched is not None:
                    observer.repeated_ops.after(thread, tag.name, watched)
                operands = self._left(thread, tag, operands, args, kwargs, result, shared)
                if kept_shared is not None:
                    number, held, outside, leaves, states = kept_shared
                    self._record_kept(thread, tag, tag.phase, held, number, kind="%s_shared")
                    self._record_kept(thread, tag, tag.phase, outside, number, kind="%s_after")
                    for kind, looked in self._written(leaves, states, given).items():
                        self._record_kept(thread, tag, tag.phase, looked, number, states, kind)
                operands += self._operands(thread, tag, tag.output, result, 1, capture, dummies)
                if capture is not None and tag.phase != engine.BACKWARD:
                    observer.reused_outputs.see(thread, tag.name, observer.read.tensors((args, kwargs)),
                                                observer.read.tensors(result))
                thread.batch.op(self._phase(thread, tag), tag.declared_alias, tag.schema_known,
                                scope, call, observer.port.intern(tag.name), operands)
                if observer.submit(thread) & engine.SUBMIT_WATCH:
                    self._watch(thread, (args, kwargs, result))
        except Exception as error:
            observer.failed("custom op", error)

    def _operands(self, thread, tag, kind, structure, is_output, capture, dummies=_NONE):
        """Packs a TENSOR message for each tensor but the dummies, if values are wanted. @return the operands of all tensors."""
        observer = self._observer
        op = observer.port.intern(tag.name)
        scope, call = thread.place()
        operands = []
        for index, tensor in enumerate(observer.read.tensors(structure)):
            value = observer.read(tensor)
            if value is None:
                continue
            slot = observer.modules.slot(kind, index)
            if capture is not None and id(tensor) not in dummies:
                thread.batch.tensor(self._phase(thread, tag), capture, scope, call, slot, op, value)
            borrows = is_output and observer.read.borrows(tensor)
            operands.append((slot, is_output, int(borrows), value, values.span_bytes(value)))
        return operands

    def _left(self, thread, tag, operands, args, kwargs, result, shared):
        """Examines the inputs after the op has run. Marks those that the op is known to write, and hashes again those
        that are not declared as written, so that the engine sees whether the op wrote them nevertheless."""
        observer, read = self._observer, self._observer.read
        inputs = read.tensors((args, kwargs))
        after = self._read_again(inputs)
        if len(after) != len(operands):
            return operands  # the op replaced tensors in its arguments
        declared = [args[one] for one in tag.writes if isinstance(one, int) and one < len(args)]
        declared += [kwargs[one] for one in tag.writes if one in kwargs]
        written = {value[_STORAGE] for _, value in self._read_again(read.tensors(declared))}
        if not tag.schema_known:
            written |= {value[_STORAGE] for (_, value), (_, _, _, before, _) in zip(after, operands)
                        if value[_VERSION] != before[_VERSION]}
        left = [(slot, 0, int(value[_STORAGE] in written), value, span)
                for slot, _, _, value, span in operands]
        if observer.capture:
            op, (scope, call) = observer.port.intern(tag.name), thread.place()
            for (index, value), (_, _, known, before, _) in zip(after, left):
                if known and self._is_declared(tag, inputs[index], result):
                    continue
                if not tag.schema_known and kept.is_buffer(thread, inputs[index]):
                    continue
                if before[_STORAGE:_STREAM] == value[_STORAGE:_STREAM]:
                    kind = tag.input + ("_shared" if index in shared else "_after")
                    slot = observer.modules.slot(kind, index)
                    thread.batch.tensor(self._phase(thread, tag), engine.HASH, scope, call, slot, op, value)
        return left

    def _is_declared(self, tag, tensor, result):
        """@return whether a write that torch has counted is declared: by a schema, or by mark_dirty, which makes an
        autograd.Function return the same object. A buffer that requires no gradient needs no declaration. A backward may
        never write to the gradients that it was given."""
        if tag.schema_known:
            return True
        if tag.phase == engine.BACKWARD:
            return False
        return (not tensor.requires_grad or not self._torch.is_grad_enabled() or
                any(one is tensor for one in self._observer.read.tensors(result)))

    def _read_again(self, tensors):
        """@return [(index, value)] of the tensors that can be read."""
        found = [(index, self._observer.read.again(tensor)) for index, tensor in enumerate(tensors)]
        return [(index, value) for index, value in found if value is not None]

    def _phase(self, thread, tag):
        return thread.slot[1] if tag.phase is None else tag.phase

    def _watch(self, thread, structure):
        observer = self._observer
        for tensor in observer.read.tensors(structure):
            observer.watches.add(tensor)
        thread.batch.frames(engine.OP_STACK, 0, scopes.python_frames())
        observer.submit(thread)


def _operator_of(op):
    """@return the C++ operator that an OpOverload or OpOverloadPacket calls. A weak reference to the op would be seen."""
    return op.__dict__["_op"]


def _library_tag(op):
    """@return the tag of an OpOverload or OpOverloadPacket; None for torch's own."""
    schemas = [op._schema] if hasattr(op, "_schema") else [
        getattr(op, name)._schema for name in op.overloads()]
    name = schemas[0].name
    if name.split("::")[0] in TORCH_NAMESPACES:
        return None
    name = op_name(name, getattr(op, "_overloadname", "default"))
    declared = any(value.alias_info is not None for schema in schemas for value in schema.returns)
    writes = {key for schema in schemas for position, argument in enumerate(schema.arguments)
              if argument.alias_info is not None and argument.alias_info.is_write
              for key in (position, argument.name)}
    tag = _Tag(name, declared, True, writes)
    tag.backward = _backward_tag(name)
    return tag


def op_name(name, overload):
    """@return the name in records: "namespace::name", followed by the overload unless it is the default one."""
    return name if overload == "default" else name + "." + overload


def _function_tags(function):
    """@return the tags of an autograd.Function class, forward and backward; None for torch's own."""
    if contents.module_of(function).split(".")[0] == "torch":
        return None
    name = contents.name_of(function)
    return _Tag(name, False, False), _backward_tag(name)

"""Custom ops: their inputs, their outputs, and the memory in which these lie.

Tagged are torch.library ops of other namespaces than torch's own, and autograd.Functions of other
packages than torch, forward and backward. Inputs are hashed before the op runs; the statistics of
its outputs follow at once, so that what a later consumer sees can be held against them.
"""
import functools
import weakref

from ..base import engine, frames, replaced, scopes, signals, values

# Namespaces that torch itself registers; tests/python compares this with the installed torch.
TORCH_NAMESPACES = frozenset((
    "_C", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_test", "_native", "_native_aot",
    "_quantized", "_test", "aot_autograd", "aten", "bucketing", "c10d", "c10d_functional", "coor", "cuda",
    "cudnn", "debug_mode_ops", "debugprims", "dist_inductor", "export", "flex_gemm", "flex_lib", "fsdp",
    "higher_order", "inductor", "inductor_prims", "mempool", "mkl", "mkldnn", "mkldnn_prepacked", "nccl",
    "onednn", "onnx", "onnx_symbolic", "prepacked", "prim", "prims", "profiler", "quantization", "quantized",
    "quantized_decomposed", "rngprims", "sparse", "static_runtime", "streams", "symm_mem",
    "tensorexpr", "torch_attn", "xnnpack"))


# Places in what values.TensorReader gives.
_VERSION, _STORAGE, _STREAM = 4, 6, 9

_MAX_PLACES = 1 << 16  # of nodes of autograd.Functions

class _Tag:
    """`writes`: positions and names of the arguments that a schema says are written."""

    __slots__ = ("name", "input", "output", "phase", "declared_alias", "schema_known", "writes")

    def __init__(self, name, declared_alias, schema_known, writes=()):
        self.name = name
        self.declared_alias, self.schema_known, self.writes = declared_alias, schema_known, writes
        self.input, self.output, self.phase = "input", "output", None


def _backward_tag(name):
    tag = _Tag(name + "Backward", False, False)
    tag.input, tag.output, tag.phase = "grad_output", "grad_input", engine.BACKWARD
    return tag


class _Tags:
    """Tag of each op object, found by identity: hashing an op runs Python code, and an attribute on
    it would be copied and pickled with it."""

    def __init__(self, make):
        self._make = make
        self._known = {}

    def of(self, target):
        """@return the tag of an op; None for an op of torch's own, or where it cannot be told."""
        known = self._known.get(id(target))
        if known is not None and known[0]() is target:
            return known[1]
        try:
            tag = self._make(target)
            self._known[id(target)] = weakref.ref(target), tag
            return tag
        except Exception as error:
            signals.let_pass(error)
            return None


class CustomOps:
    def __init__(self, observer, torch):
        self._observer = observer
        self._torch = torch
        self._replaced = replaced.Replaced()
        self._library_tags = _Tags(_library_tag)
        self._function_tags = _Tags(_function_tags)
        self._places = {}  # id of an autograd.Function's node -> (its number, slot word of the call that its forward was in)

    def install(self):
        ops = self._torch._ops
        for name in "OpOverloadPacket", "OpOverload":
            self._replaced.wrap(getattr(ops, name, None), "__call__", self._library_call)
        # A classmethod of Python since torch 2.0, of C since 2.15.
        self._replaced.wrap(self._torch.autograd.Function, "apply", self._function_apply)
        backward = getattr(self._torch.autograd.function, "BackwardCFunction", None)
        self._replaced.wrap(backward, "apply", self._function_backward)

    def remove(self):
        self._replaced.put_back()

    def _library_call(self, original):
        observer, record, tag_of = self._observer, self._record, self._library_tags.of
        is_folded = observer.is_folded

        @frames.unseen
        @functools.wraps(original)
        def __call__(self, /, *args, **kwargs):
            if is_folded():
                return original(self, *args, **kwargs)
            if observer.is_compiling():
                return original(self, *args, **kwargs)
            try:
                tag = tag_of(self)
                if tag is None or not observer.active or observer.is_tracing():
                    return original(self, *args, **kwargs)
                return record(tag, functools.partial(original, self), args, kwargs)
            except BaseException as error:
                frames.hide(error)
                raise

        return __call__

    def _function_apply(self, original):
        observer, record, tags_of = self._observer, self._record, self._function_tags.of

        @frames.unseen
        @functools.wraps(original)
        def apply(cls, *args, **kwargs):
            if observer.is_compiling():
                return original(cls, *args, **kwargs)
            try:
                tags = tags_of(cls)
                in_library_op = observer.threads.state.ops  # its autograd registration: one op, not two
                if not observer.active or (tags is None and not in_library_op) or observer.is_tracing():
                    return original(cls, *args, **kwargs)
                result = (original(cls, *args, **kwargs) if in_library_op else
                          record(tags[0], functools.partial(original, cls), args, kwargs))
            except BaseException as error:
                frames.hide(error)
                raise
            self._remember_place(result)
            return result

        return apply

    def _function_backward(self, original):
        observer, record, tags_of, place_of = self._observer, self._record, self._function_tags.of, self._place_of

        @frames.unseen
        @functools.wraps(original)
        def apply(self, *args):
            if observer.is_compiling():
                return original(self, *args)
            slot = observer.threads.state.slot
            before = slot[0]
            try:
                if observer.is_tracing() or not observer.active:
                    return original(self, *args)
                tags = tags_of(self._forward_cls)
                slot[0] = place_of(self, before)
                if tags is None:
                    return original(self, *args)
                return record(tags[1], functools.partial(original, self), args, {})
            except BaseException as error:
                frames.hide(error)
                raise
            finally:
                slot[0] = before

        return apply

    def _place_of(self, node, otherwise):
        """The module and call in which the forward of an autograd.Function's node ran."""
        number, place = self._places.get(id(node), (None, otherwise))
        return place if number == node._sequence_nr() else otherwise

    def _remember_place(self, result):
        """What an op does in backward belongs to the module that called it forward, not to the one
        whose output gradient came last. A node is known by its address, and by the number that autograd gives each."""
        observer = self._observer
        try:
            with observer.read.unobserved():
                for tensor in observer.read.tensors(result):
                    node = tensor.grad_fn
                    if isinstance(node, self._torch.autograd.function.BackwardCFunction):
                        if len(self._places) == _MAX_PLACES:
                            self._places.clear()
                        self._places[id(node)] = node._sequence_nr(), observer.threads.state.slot[0]
                        return
        except Exception as error:
            observer.failed("custom op", error)

    @frames.unseen
    def _record(self, tag, call, args, kwargs):
        """Runs the op; only what it raises itself leaves this function."""
        operands, watched = self._before(tag, args, kwargs)
        thread = self._observer.threads.state
        thread.ops += tag.schema_known
        try:
            result = call(*args, **kwargs)
        finally:
            thread.ops -= tag.schema_known
        if operands is not None:
            self._after(tag, operands, watched, args, kwargs, result)
        return result

    def _before(self, tag, args, kwargs):
        """Hashes the inputs. @return operands for the OP message, or None when not observed, and what the watch on
        repeated calls wants behind the op, or None."""
        observer = self._observer
        try:
            thread = observer.threads.state
            if not observer.begin(thread):
                return None, None
            capture = engine.HASH if observer.capture else None
            thread.batch.op_begin(self._phase(thread, tag), *thread.place(), observer.port.intern(tag.name))
            with observer.read.unobserved():
                operands = self._operands(thread, tag, tag.input, (args, kwargs), 0, capture)
                watched = (observer.repeated_ops.before(thread, tag.name, (args, kwargs), len(operands))
                           if observer.capture and self._phase(thread, tag) == engine.FORWARD else None)
            observer.submit(thread)
            return operands, watched
        except Exception as error:
            observer.failed("custom op", error)
            return None, None

    def _after(self, tag, operands, watched, args, kwargs, result):
        observer = self._observer
        try:
            thread = observer.threads.state
            capture = observer.full if observer.capture else None
            scope, call = thread.place()
            with observer.read.unobserved():
                if watched is not None:
                    observer.repeated_ops.after(thread, tag.name, watched)
                operands = self._left(thread, tag, operands, args, kwargs)
                operands += self._operands(thread, tag, tag.output, result, 1, capture)
                thread.batch.op(self._phase(thread, tag), tag.declared_alias, tag.schema_known,
                                scope, call, observer.port.intern(tag.name), operands)
                if observer.submit(thread) & engine.SUBMIT_WATCH:
                    self._watch(thread, (args, kwargs, result))
        except Exception as error:
            observer.failed("custom op", error)

    def _operands(self, thread, tag, kind, structure, is_output, capture):
        """Packs a TENSOR message for each tensor, if values are wanted, and describes them all."""
        observer = self._observer
        op = observer.port.intern(tag.name)
        scope, call = thread.place()
        operands = []
        for index, tensor in enumerate(observer.read.tensors(structure)):
            value = observer.read(tensor)
            if value is None:
                continue
            slot = observer.modules.slot(kind, index)
            if capture is not None:
                thread.batch.tensor(self._phase(thread, tag), capture, scope, call, slot, op, value)
            borrows = is_output and observer.read.borrows(tensor)
            operands.append((slot, is_output, int(borrows), value, values.span_bytes(value)))
        return operands

    def _left(self, thread, tag, operands, args, kwargs):
        """Examines the inputs after the op has run. Marks those that the op is known to write, and hashes the others
        again, so that the engine sees whether the op wrote them nevertheless."""
        observer, read = self._observer, self._observer.read
        after = self._read_again(read.tensors((args, kwargs)))
        if len(after) != len(operands):
            return operands  # it replaced what is in its arguments
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
                if not known and before[_STORAGE:_STREAM] == value[_STORAGE:_STREAM]:
                    slot = observer.modules.slot(tag.input + "_after", index)
                    thread.batch.tensor(self._phase(thread, tag), engine.HASH, scope, call, slot, op, value)
        return left

    def _read_again(self, tensors):
        """(index, value) of the tensors that can be read; the others are counted."""
        read = self._observer.read
        skipped = read.skipped
        found = [(index, read(tensor)) for index, tensor in enumerate(tensors)]
        read.skipped = skipped
        return [(index, value) for index, value in found if value is not None]

    def _phase(self, thread, tag):
        return thread.slot[1] if tag.phase is None else tag.phase

    def _watch(self, thread, structure):
        observer = self._observer
        for tensor in observer.read.tensors(structure):
            observer.watches.add(tensor)
        thread.batch.frames(engine.OP_STACK, 0, scopes.python_frames())
        observer.submit(thread)


def _library_tag(op):
    """Of an OpOverload or an OpOverloadPacket."""
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
    return _Tag(name, declared, True, writes)


def op_name(name, overload):
    """The name in records: "namespace::name", with the overload if there are several."""
    return name if overload == "default" else name + "." + overload


def _function_tags(function):
    """Of an autograd.Function class: forward and backward; None for torch's own."""
    if function.__module__.split(".")[0] == "torch":
        return None
    return _Tag(function.__name__, False, False), _backward_tag(function.__name__)

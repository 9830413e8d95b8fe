"""Records collectives and transfers between ranks from every caller: torch.distributed, functional collectives,
DTensor, FSDP, and C++ such as DDP's reducer.

All of them are operators `c10d::*` of PyTorch's dispatcher. A kernel for the key BackendSelect, which every
call meets and which torch leaves empty for these operators, records the call and passes it on. Received tensors
are read on the thread that waits for them, at the end of the wait. If C++ waits (DDP), they are read when it
returns to Python: at the end of the backward pass or of the broadcast of buffers. No callback is left with the
backend, whose threads may outlive Python.

A call with tensors outside of host memory is recorded without values. If its backend calls NCCL, the preload library
records the call to NCCL, with values: a call with CUDA tensors is recorded here when it has returned, and only if
no call to NCCL was recorded on this thread meanwhile.
"""
import _thread
import functools
import itertools

from ..base import engine, frames, replaced, spent, values
from . import flights, groups

_MOST_PENDING, _MOST_STEPS = 256, 2  # calls, and steps, after which a call that does not become complete is given up
_NCCL_CALLS = 2  # in a thread's slot


class _Op:
    """An operator of c10d. `sent`, `received`, `reduction`, `peer`: positions of its arguments, or None. The group follows
    the tensors. `tag`: position of a transfer's tag; a transfer without a peer receives from any source. `sends_root`,
    `gives_root`: only the root sends, or receives. `in_place`: the received tensors are those that were sent."""

    __slots__ = ("name", "sent", "received", "reduction", "peer", "tag", "group", "sends_root", "gives_root", "in_place", "asks")

    def __init__(self, name, sent=None, received=None, reduction=None, peer=None, tag=None, sends_root=False, gives_root=False):
        self.name, self.sent, self.received, self.reduction, self.peer, self.tag = name, sent, received, reduction, peer, tag
        self.group = max(sent or 0, received or 0) + 1
        self.sends_root, self.gives_root = sends_root, gives_root
        self.in_place = sent == received and not (sends_root or gives_root)
        self.asks = None  # position of the argument that says whether the caller will wait


# The operators of torch/csrc/distributed/c10d/Ops.cpp.
_OPS = {
    "allreduce_": _Op("all_reduce", 0, 0, 2),
    "allreduce_coalesced_": _Op("all_reduce", 0, 0, 2),
    "broadcast_": _Op("broadcast", 0, 0, peer=2, sends_root=True),
    "reduce_": _Op("reduce", 0, 0, 2, 3, gives_root=True),
    "allgather_": _Op("all_gather", 1, 0),
    "_allgather_base_": _Op("all_gather", 1, 0),
    "allgather_coalesced_": _Op("all_gather", 1, 0),
    "allgather_into_tensor_coalesced_": _Op("all_gather", 1, 0),
    "reduce_scatter_": _Op("reduce_scatter", 1, 0, 3),
    "_reduce_scatter_base_": _Op("reduce_scatter", 1, 0, 3),
    "reduce_scatter_tensor_coalesced_": _Op("reduce_scatter", 1, 0, 3),
    "gather_": _Op("gather", 1, 0, peer=3, gives_root=True),
    "scatter_": _Op("scatter", 1, 0, peer=3, sends_root=True),
    "alltoall_": _Op("all_to_all", 1, 0),
    "alltoall_base_": _Op("all_to_all", 1, 0),
    "barrier": _Op("barrier"),
    "monitored_barrier_": _Op("barrier"),
    "send": _Op("send", 0, peer=2, tag=3),
    "recv_": _Op("recv", received=0, peer=2, tag=3),
    "recv_any_source_": _Op("recv", received=0, tag=2),
}
# Operators for which gloo writes to a single received tensor without a count by torch. To several tensors it copies.
_UNCOUNTED = ("all_reduce", "broadcast", "reduce", "scatter", "recv")
# Functional collectives that write to a tensor of the program: the position or name of that argument.
_WRITING = {"all_reduce_": 0, "all_reduce_coalesced_": 0, "broadcast_": 0, "all_gather_into_tensor_out": "out",
            "reduce_scatter_tensor_out": "out"}
# c10d::ReduceOp::RedOpType
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")


class _Pending:
    """A call whose outputs are still to be read. `where`: phase, scope, call and op of their records. `memory`: their
    values.Memory. `versions`: torch's counts of writes to them. `borrows`: their storage may not own its memory, which may
    be gone once the program knows that the call is complete. `from_any`: the groups.FromAny of a reception from any source
    that is not recorded yet."""

    __slots__ = ("number", "step", "where", "tensors", "memory", "versions", "borrows", "work", "from_any")

    def __init__(self, number, step, where, tensors, memory, versions, borrows, from_any=None):
        self.number, self.step, self.where, self.borrows = number, step, where, borrows
        self.tensors, self.memory, self.versions = tensors, memory, versions  # the tensors, so that their memory stays
        self.work, self.from_any = None, from_any


# The kernels in torch's dispatcher, which are never removed, since one may be running at any time; and a list of the one
# Collectives that they call.
_kernels, _told = [], []
_abandoned = []  # works of the parent in a forked child: a thread that the child lacks may hold their locks


class Collectives:
    def __init__(self, observer, torch):
        self._observer = observer
        self._torch = torch
        self._groups = {}
        self._ids = itertools.count(1)
        self.last = 0  # id of the last call
        self._step, self._calls = -1, {}  # of this step: calls by place and op
        self._pending = {}  # id of the work's Python object -> _Pending
        self._inside = []  # threads in functions of C++ that call and wait
        self._flights = flights.Flights(observer, torch)
        self._replaced = replaced.Replaced()

    def install(self):
        torch = self._torch
        c10d = getattr(torch._C, "_distributed_c10d", None)
        if c10d is None or not hasattr(c10d.Work, "unbox"):
            return  # no torch.distributed, or one whose operators have arguments that Python cannot read
        self._unbox_group, self._unbox_work = c10d.ProcessGroup.unbox, c10d.Work.unbox
        if not _kernels:
            _add_kernels(torch)
        _told[:] = [self]
        self._patch(c10d.Work, "wait", self._wrap_wait)
        self._wait = c10d.Work.wait
        for name in ("synchronize", "block_current_stream", "get_future", "get_future_result", "result"):
            self._patch(c10d.Work, name, self._wrap_waited)
        for name in ("is_completed", "is_success"):
            self._patch(c10d.Work, name, self._wrap_asked)
        # Functions of DDP in C++ that call and wait. The received tensors may be written directly afterwards.
        for where, name in ((torch.distributed, "_broadcast_coalesced"), (torch.distributed, "_verify_params_across_processes"),
                            (c10d.Reducer, "_rebuild_buckets")):
            self._patch(where, name, self._wrap_waiting)

    def remove(self):
        _told[:] = []
        self._pending.clear()
        self._flights.forget()
        self._replaced.put_back()

    def _patch(self, where, name, wrap):
        original = getattr(where, name, None)
        if original is not None:
            self._replaced.set(where, name, functools.wraps(original)(wrap(original)))

    def forget(self):
        """Resets the state in a forked child, where ids and groups of the parent are invalid."""
        self._groups.clear()
        _abandoned.append((dict(self._pending), self._flights.forget()))
        self._pending.clear()
        self._calls.clear()
        self._step = -1

    def read_complete(self, since=None, base=None):
        """Reads the received tensors of complete calls, before the program overwrites them.
        @param since, base  calls after this id, or into memory of this address, were waited for just now"""
        for key, pending in list(self._pending.items()):
            if _is_complete(pending.work):
                just = (since is not None and pending.number > since  # a call that is not recorded yet has number 0
                        or base is not None and any(memory is not None and memory.base == base for memory in pending.memory))
                self._received(key, just)
            elif pending.step + _MOST_STEPS < self._observer.step:
                self._give_up(key)

    def any_under_way(self):
        """@return whether a collective may be writing to its tensors, or reading them."""
        return bool(self._pending) or self._flights.any()

    def _wrap_wait(self, original):
        pending, flying, received, give_up = self._pending, self._flights, self._received, self._give_up

        @frames.unseen
        def wait(self, *args, **kwargs):
            flying.end(self)
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                give_up(id(self))
                frames.hide(error)
                raise
            if id(self) in pending:
                received(id(self), True, True)
                flying.received()
            return result

        return wait

    def _wrap_waited(self, original):
        flying = self._flights

        @frames.unseen
        def function(self, *args, **kwargs):
            flying.end(self)
            return original(self, *args, **kwargs)

        return function

    def _wrap_asked(self, original):
        pending, flying, received = self._pending, self._flights, self._received

        @frames.unseen
        def function(self, *args, **kwargs):
            result = original(self, *args, **kwargs)
            if result:
                flying.end(self)
                if id(self) in pending:
                    received(id(self), True, True)
            return result

        return function

    def begin_step(self, step):
        if not (self._pending or self._flights.any()):
            return
        try:
            self.read_complete()
            self._flights.give_up(step)
        except Exception as error:
            self._observer.failed("collectives", error)

    def finish(self):
        """Reads and ends all pending calls when the program ends."""
        self.waited()
        try:
            self._flights.give_up()
        except Exception as error:
            self._observer.failed("collectives", error)

    def _wrap_waiting(self, original):
        """Wraps a function of C++ that calls collectives and waits for them."""
        @frames.unseen
        def function(*args, **kwargs):
            thread, since = _thread.get_ident(), self.last
            self._inside.append(thread)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                frames.hide(error)
                raise
            finally:
                self._inside.remove(thread)
                self.waited(since)

        return function

    def waited(self, since=None):
        """Reads received tensors after a wait in C++, for the calls after the id `since` or, without it, for unknown ones."""
        if not self._pending:
            return
        try:
            self.read_complete(since)
        except Exception as error:
            self._observer.failed("collectives", error)

    def waited_for(self, tensor):
        observer = self._observer
        try:
            with observer.read.unobserved():
                if self._pending:
                    self.read_complete(base=observer.read.base(tensor))
                observer.awaited.waited_for(tensor)
        except Exception as error:
            observer.failed("collectives", error)

    def written_again(self, tensors):
        read = self._observer.read
        try:
            with read.unobserved():
                for tensor in read.tensors(tensors):
                    read.begin_again(tensor)
        except Exception as error:
            self._observer.failed("collectives", error)

    def slot_of_nccl(self, op, args):
        """@return the slot of this thread if a call with these arguments may use NCCL; else None."""
        try:
            if not self._observer.active:
                return None
            with self._observer.read.unobserved():
                on_cuda = any(map(_is_on_cuda, args[:op.group]))
            return self._observer.threads.state.slot if on_cuda else None
        except Exception as error:
            self._observer.failed("collectives", error)
            return None

    def called(self, op, args):
        """Records a call before it runs. @return the argument of follow(): its _Pending and its flight; or None."""
        observer = self._observer
        try:
            thread = observer.threads.state
            if not observer.begin(thread):
                return None
            if self._pending and _thread.get_ident() not in self._inside:
                self.read_complete()
            return self._record(thread, op, args)
        except Exception as error:
            observer.failed("collectives", error)
            return None

    @spent.sampled
    def _record(self, thread, op, args):
        observer, intern, batch = self._observer, self._observer.port.intern, thread.batch
        group = self._group(args[op.group])
        peer = groups.NO_PEER if op.peer is None else args[op.peer]
        with observer.read.unobserved():
            sent = self._tensors(args, op.sent, not op.sends_root or group.rank == peer)
            received = sent if op.in_place else self._tensors(args, op.received, not op.gives_root or group.rank == peer)
            elements = _elements(sent)
            device, index, dtype = self._kind((sent or received or (None,))[0])
            scope, call = thread.place()
            phase, name = self._phase(thread), intern(op.name)
            reduction = 0 if op.reduction is None else self._reduction(args[op.reduction])
            tag = 0 if op.tag is None or device != 0 else max(args[op.tag], -1) + 1  # a backend of a device may have none
            before = (phase, dtype, device, index, scope, call, name, group.name, group.members, reduction, group.rank, group.size)
            behind = 0, elements, elements if op.in_place else _elements(received)
            number, from_any, pending, flight = 0, None, None, None
            if op.tag is not None and op.peer is None:
                from_any = groups.FromAny(group, op, tag, before, behind)
            else:
                number = self._tell(batch, before, peer, behind, group.number(op, peer, tag), tag)
            if observer.capture and device == 0:
                where = phase, scope, self._count(phase, scope, name), name
                memory = self._memory(sent)
                self._pack(batch, where, "sent", memory)
                if received:
                    pending = _Pending(number, observer.step, where, received,
                                       memory if received is sent else self._memory(received),
                                       [values.version(tensor) for tensor in received],
                                       any(map(observer.read.borrows, received)), from_any)
                asks = op.asks is not None and (len(args) <= op.asks or args[op.asks])
                if asks or op.tag is not None:
                    counts = op.name not in _UNCOUNTED or len(received) != 1 or not group.is_gloo
                    is_root = op.sends_root and op.sent == op.received and group.rank == peer  # of a broadcast: it sends
                    flight = self._flights.prepare((scope, call, phase), name, asks, sent, () if is_root else received, counts)
            elif from_any:
                pending = _Pending(number, observer.step, None, (), (), (), False, from_any)
        observer.submit(thread)
        return (pending, flight) if pending or flight else None

    def _tell(self, batch, before, peer, behind, number, tag):
        """Packs the record of a call. @return its id."""
        self.last = next(self._ids)
        batch.collective(*before, peer, *behind, number, self.last, tag)
        return self.last

    def _tell_from_any(self, batch, pending, is_complete):
        """Records a reception from any source, with its source if that is known. Messages of one source are received in the
        order of the calls. Therefore the source's message is unknown while an earlier call is pending, or if a later one was
        counted."""
        from_any, source = pending.from_any, groups.NO_PEER
        if is_complete and not any(from_any.comes_behind(one.from_any) for one in self._pending.values()):
            source = from_any.source_of(pending.work)
        number = 0 if source == groups.NO_PEER else from_any.number(source)
        pending.number = self._tell(batch, from_any.before, source, from_any.behind, number, from_any.tag)

    def follow(self, called, result):
        """Follows a call that has been made. @param result  the operator's: its work, alone or after other results"""
        pending, flight = called
        try:
            work = self._unbox_work(result[-1] if issubclass(type(result), (tuple, list)) else result)
            if flight is not None and type(work).wait is self._wait:
                self._flights.begin(flight, work)
            if pending is None:
                return
            pending.work = work
            if len(self._pending) >= _MOST_PENDING:
                self._give_up(next(iter(self._pending)))
            self._pending[id(pending.work)] = pending
        except Exception as error:
            self._observer.failed("collectives", error)

    def _received(self, key, just, seen=False, given_up=False):
        """Reads the received tensors of a call, or counts them as lost.
        @param just  the program has not run since the call was complete or waited for. Otherwise the program may have
        written to them, and a changed count of writes is taken for that, although some backends change it, too.
        @param seen  the call was waited for in Python, so borrowed memory is still there"""
        observer = self._observer
        pending = self._pending.pop(key, None)
        if pending is None or not observer.active:
            return
        try:
            batch = engine.Batch(observer.port)
            with observer.read.unobserved():
                known = not given_up and (seen or not (pending.borrows or _has_failed(pending.work)))
                if pending.from_any:
                    self._tell_from_any(batch, pending, known)
                if known and self._is_as_received(pending, just):
                    batch.collective_values(pending.number, pending.step)
                    self._pack(batch, pending.where, "received", pending.memory)
                elif pending.memory:
                    batch.loss(engine.LOST_COLLECTIVE_MISSED, len(pending.memory))
            batch.submit()
        except Exception as error:
            observer.failed("collectives", error)

    def _give_up(self, key):
        self._received(key, False, given_up=True)

    def _phase(self, thread):
        """@return the phase of a call. One between a backward pass and the next call of a module is communication: it
        exchanges gradients or weights."""
        phase = thread.slot[1]
        behind = phase == engine.FORWARD and thread.entry is None and self._observer.steps.behind_backward
        return engine.COMMUNICATION if behind else phase

    def _group(self, boxed):
        group = self._unbox_group(boxed)
        name = group.group_name
        known = self._groups.get(name)
        if known is None or (known.rank, known.size) != (group.rank(), group.size()):
            intern = self._observer.port.intern
            known = self._groups[name] = groups.Group(intern("c10d:" + name), group.rank(), group.size(),
                                                      self._is_gloo(group))
        if known.members == 0:
            ranks = self._ranks(group)
            if ranks is not None:
                known.members = self._observer.port.intern(groups.ranges(ranks))
        return known

    def _is_gloo(self, group):
        """@return whether gloo serves a group's tensors in host memory."""
        try:
            return group._get_backend(self._torch.device("cpu")).name() == "gloo"
        except Exception:  # it has no backend for them, or torch does not tell
            return False

    def _ranks(self, group):
        """@return the global ranks of a group's members; None while torch.distributed is still making the group."""
        ranks = self._torch.distributed.distributed_c10d._world.pg_group_ranks.get(group)
        return None if ranks is None else sorted(ranks, key=ranks.get)

    def _reduction(self, boxed):
        number = boxed.op()
        return self._observer.port.intern(_REDUCTIONS[number]) if number in range(len(_REDUCTIONS)) else 0

    def _tensors(self, args, position, meant):
        return self._observer.read.tensors(args[position]) if position is not None and meant else ()

    def _kind(self, tensor):
        """@return the type and index of a tensor's device, and its dtype."""
        if tensor is None:
            return 0, 0, 0
        dtype = self._observer.read.dtypes.get(tensor.dtype, 0)
        if tensor.is_cuda:
            return 1, tensor.get_device(), dtype
        return (0 if tensor.is_cpu else 2), 0, dtype

    def _memory(self, tensors):
        """@return the Memory of tensors without their storages: only some backends count their writes, so equal identities
        would not mean equal bytes."""
        read = self._observer.read
        return [None if value is None else value._replace(storage=0) for value in map(read, tensors)]

    def _is_as_received(self, pending, just):
        """@return whether the memory was neither replaced nor written since the call."""
        for tensor, memory, version in zip(pending.tensors, pending.memory, pending.versions):
            if memory is not None and (self._observer.read.base(tensor) != memory.base
                                       or not just and values.version(tensor) != version):
                return False
        return True

    def _count(self, phase, scope, op):
        """@return how many calls of this op came before at this place in this step."""
        if self._step != self._observer.step:
            self._step = self._observer.step
            self._calls.clear()
        count = self._calls.get((phase, scope, op), 0)
        self._calls[phase, scope, op] = count + 1
        return count

    def _pack(self, batch, where, kind, memory):
        observer, (phase, scope, call, op) = self._observer, where
        for index, value in enumerate(memory):
            if value is not None:
                batch.tensor(phase, observer.full, scope, call, observer.modules.slot(kind, index), op, value)


def _add_kernels(torch):
    behind = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
    for namespace, operators, make in (("c10d", _OPS, _call_kernel), ("_c10d_functional", {"wait_tensor": None}, _wait_kernel),
                                       ("_c10d_functional", _WRITING, _writing_kernel)):
        library = torch.library.Library(namespace, "IMPL")
        _kernels.append(library)
        for name, op in operators.items():
            packet = getattr(getattr(torch.ops, namespace), name, None)
            if packet is not None:
                if isinstance(op, _Op):
                    op.asks = next((i for i, one in enumerate(packet.default._schema.arguments) if one.name == "async_op"), None)
                library.impl(name, _hidden(make(op, _redispatch(packet.default), behind)), "BackendSelect", with_keyset=True)


def _redispatch(operator):
    """@return Operator.redispatch, or the function of C++ that it calls."""
    return getattr(getattr(operator, "_handle", None), "redispatch_boxed", operator.redispatch)


def _hidden(kernel):
    @frames.unseen
    def hidden(keys, *args, **kwargs):
        try:
            return kernel(keys, *args, **kwargs)
        except BaseException as error:
            frames.hide(error)
            raise

    return hidden


def _call_kernel(op, redispatch, behind):
    def kernel(keys, *args):
        told = _told[0] if _told else None
        slot = told and told.slot_of_nccl(op, args)
        if slot is not None:
            before = slot[_NCCL_CALLS]
            result = redispatch(keys & behind, *args)
            called = told.called(op, args) if slot[_NCCL_CALLS] == before else None
        else:
            called = told and told.called(op, args)
            result = redispatch(keys & behind, *args)
        if called is not None:
            told.follow(called, result)
        return result

    return kernel


def _wait_kernel(_, redispatch, behind):
    def kernel(keys, *args):
        result = redispatch(keys & behind, *args)
        told = _told[0] if _told else None
        if told:
            told.waited_for(args[0])
        return result

    return kernel


def _writing_kernel(written, redispatch, behind):
    def kernel(keys, *args, **kwargs):
        told = _told[0] if _told else None
        if told:
            told.written_again(args[written] if written in range(len(args)) else kwargs.get(written))
        return redispatch(keys & behind, *args, **kwargs)

    return kernel


def _is_on_cuda(argument):
    """@return whether a tensor, or the first one in nested lists, is on a CUDA device."""
    while issubclass(type(argument), (list, tuple)) and argument:
        argument = argument[0]
    return getattr(argument, "is_cuda", False)


def _is_complete(work):
    """@return whether a work or its future is complete: DDP waits for the future, which is complete a moment earlier."""
    if _unwrapped(type(work).is_completed)(work):
        return True
    try:
        return _unwrapped(type(work).get_future)(work).done()
    except RuntimeError:  # a transfer has none
        return False


def _has_failed(work):
    """@return whether a complete work has failed. Work.exception() would warn. A transfer that was not waited for is
    complete only when it failed."""
    try:
        _unwrapped(type(work).get_future)(work).wait()
        return False
    except Exception:
        return True


def _unwrapped(method):
    """@return torch's own function, since our replacement takes every call for one of the program."""
    return getattr(method, "__wrapped__", method)


def _elements(tensors):
    return sum(tensor.numel() for tensor in tensors)

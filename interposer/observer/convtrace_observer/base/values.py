"""Describes a tensor for the engine: memory, layout, and the identity of the value.

Only plain strided memory on a CPU or CUDA device is described, and a few wrappers that are known to
hold exactly one such tensor. Everything else (FX proxies, fake, functorch, sparse, nested, meta,
lazily conjugated ... tensors) gives None and is counted. No operator of torch is called: reading
a tensor must not show up in a dispatch mode, tracer, random state or autograd graph.
"""
import collections
import ctypes
import math
import operator

from . import contents, engine, signals, storage_numbers

CPU, CUDA = 0, 1

# Names of torch.dtype to values of format/model/dtype.h.
_DTYPES = {
    "float64": 1, "float32": 2, "float16": 3, "bfloat16": 4, "float8_e4m3fn": 5, "float8_e5m2": 6,
    "int8": 7, "uint8": 8, "int16": 9, "uint16": 10, "int32": 11, "uint32": 12, "int64": 13,
    "uint64": 14, "bool": 15, "complex64": 16, "complex128": 17,
    "float4_e2m1fn_x2": 18, "float8_e8m0fnu": 19,
}
_UNKNOWN = 0
_COMPLEX = (16, 17)
# Element types whose bytes are not the value (a scale lies elsewhere).
_QUANTIZED = ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
_CONTAINERS = tuple, list, dict
_LEAVES = type(None), bool, int, float, str
_MAX_TENSORS = 256  # of one nested structure: a KV cache has many, and a faulty structure may be endless
_MAX_DEPTH = 8
_MAX_FINISHED = 1 << 16  # storages
_MOST_ELEMENTS = 1 << 12  # of tensors with gaps that are compared element by element
_MAX_KINDS, _MAX_TEXT = 16, 200  # kinds of unreadable tensors; characters of torch's message about one


class Memory(collections.namedtuple(
        "Memory", "device index dtype rank version data storage base storage_bytes stream dims")):
    """The memory of a tensor: type and index of its device, its dtype (format/model/dtype.h), its version counter, the
    addresses of its first element and of its storage, the storage's identity and size, the stream that uses it, and
    `rank` extents followed by `rank` strides, in elements."""
    __slots__ = ()


class _Bare:
    """A view of a tensor of the program's own class that has the attributes of torch.Tensor."""

    __slots__ = ("_tensor", "_kind")

    def __init__(self, tensor, kind):
        self._tensor, self._kind = tensor, kind

    def __getattr__(self, name):
        return contents.found_in(self._kind, name).__get__(self._tensor)


_new = tuple.__new__  # takes a third of the time of Memory(...)


def span_bytes(value):
    """@return the number of bytes from the first to the last byte of the elements."""
    shape, strides = value.dims[:value.rank], value.dims[value.rank:]
    if 0 in shape:
        return 0
    last = sum((extent - 1) * abs(stride) for extent, stride in zip(shape, strides))
    return (last + 1) * ELEMENT_BYTES[value.dtype]


def element_bytes(value):
    """@return the number of bytes of all elements: more than span_bytes() if some share memory, fewer if there are gaps."""
    return math.prod(value.dims[:value.rank]) * ELEMENT_BYTES[value.dtype]


def share(first, second):
    """@return whether two tensors have an element in common. Exact, except for large tensors with gaps: there only
    tensors with equal addresses and extents count."""
    if first.base >= second.base + second.storage_bytes or second.base >= first.base + first.storage_bytes:
        return False  # the most frequent case, and the quickest to decide
    ends = [value.data + span_bytes(value) for value in (first, second)]
    if max(first.data, second.data) >= min(ends) or (first.device, first.index) != (second.device, second.index):
        return False
    if all(end - value.data == element_bytes(value) for value, end in zip((first, second), ends)):
        return True
    (width, pitch), (other_width, other_pitch) = _rows(first), _rows(second)
    between, pitch = second.data - first.data, math.gcd(pitch, other_pitch)
    if -other_width < between < width:  # one begins in the first row of the other
        return True
    if pitch != 0 and between % pitch >= width and -between % pitch >= other_width:  # columns side by side
        return False
    if any(element_bytes(value) > _MOST_ELEMENTS for value in (first, second)):
        return first.data == second.data and first.dims == second.dims
    return not _addresses(first).isdisjoint(_addresses(second))


def pairs(memories):
    """@return [(position, position)] of tensors that share an element, in order. Each tensor is compared only with the one
    that begins before it in the same memory and reaches furthest."""
    found, reach = [], None
    for one in sorted((one.device, one.index, one.data, at, one.data + span_bytes(one)) for at, one in enumerate(memories)):
        is_beside = reach is None or one[:2] != reach[:2] or one[2] >= reach[4]
        if not is_beside and share(memories[reach[3]], memories[one[3]]):
            found.append((min(reach[3], one[3]), max(reach[3], one[3])))
        if is_beside or one[4] > reach[4]:
            reach = one
    return sorted(found, key=lambda pair: pair[1])


def _rows(value):
    """@return the bytes of a row of elements without gaps, and a common divisor of the distances between rows."""
    width, pitch = ELEMENT_BYTES[value.dtype], 0
    for stride, extent in sorted(zip(value.dims[value.rank:], value.dims[:value.rank])):
        stride *= ELEMENT_BYTES[value.dtype]
        if extent == 1:
            continue
        if stride == width and pitch == 0:
            width *= extent
        else:
            pitch = math.gcd(pitch, stride)
    return width, pitch


def _addresses(value):
    """@return the set of the addresses of all bytes of the elements."""
    found, width = [value.data], ELEMENT_BYTES[value.dtype]
    for extent, stride in zip(value.dims[:value.rank], value.dims[value.rank:]):
        found = [address + index * stride * width for address in found for index in range(extent)]
    return {address + byte for address in found for byte in range(width)}


ELEMENT_BYTES = (1, 8, 4, 2, 2, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 8, 16, 1, 1)


class TensorReader:
    """Callable: tensor -> Memory, or None (counted in `skipped`)."""

    def __init__(self, torch):
        self.skipped = 0
        self.refusals = []  # texts to report: kinds of tensors that torch does not describe, with its message
        self._kinds = set()  # all kinds that were reported
        self.numbers = storage_numbers.StorageNumbers()
        self.number_of = self.numbers.of  # in C++, if that is there
        self._finished = {}  # numbers of storages that a functional collective has written, and that were waited for
        self.memory = lambda tensor: None  # in C++, if that is there: the fields of Memory; None: _describe() says
        global _version_of
        _version_of = contents.found_in(torch.Tensor, "_version").__get__
        self._tensor, self._parameter = torch.Tensor, torch.nn.Parameter
        self.dtypes = {
            getattr(torch, name): code for name, code in _DTYPES.items() if hasattr(torch, name)}
        self._refused = {getattr(torch, name) for name in _QUANTIZED if hasattr(torch, name)}
        self._strided = torch.strided
        self._dispatch = contents.found_in(torch.Tensor, "__torch_dispatch__")
        functorch = getattr(torch._C, "_functorch", None)
        self.is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", lambda tensor: False)
        self._has_storage = getattr(torch._C, "_has_storage", lambda tensor: True)
        # Address of the storage. data_ptr() would materialise a copy-on-write tensor.
        self.base = getattr(torch._C, "_data_address", _storage_address)
        self.raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._tells_resizable = hasattr(getattr(torch, "UntypedStorage", None), "resizable")
        # Attribute access alone runs __torch_function__ of subclasses and of modes.
        self.unobserved = torch._C.DisableTorchFunction

    def is_plain(self, tensor):
        """@return whether a tensor is of torch's own class, which has no code of the program."""
        kind = type(tensor)
        return kind is self._tensor or kind is self._parameter

    def has_storage(self, tensor):
        """@return whether a tensor is plain and has a storage: one that is sparse or wrapped by functorch has none."""
        return self.is_plain(tensor) and self._has_storage(tensor)

    def bare(self, tensor):
        """@return an object with torch's own attributes of a tensor, since the tensor's class may override them."""
        return tensor if self.is_plain(tensor) else _Bare(tensor, self._tensor)

    def tensors(self, structure):
        """@return the tensors of nested tuples, lists, dicts and dataclasses, in order."""
        kind = type(structure)
        if kind is self._tensor:
            return [structure]
        found = []
        self._flatten(structure, found, 0)
        return found

    def _flatten(self, item, found, depth):
        kind = type(item)
        if kind is self._tensor or issubclass(kind, self._tensor):
            if len(found) < _MAX_TENSORS:
                found.append(item)
        elif depth == _MAX_DEPTH:
            return
        elif issubclass(kind, _CONTAINERS):
            for element in contents.elements(item):
                self._flatten(element, found, depth + 1)
        elif type(kind) is not type or kind not in _LEAVES:  # another metaclass may compare its classes
            for name in _fields(kind):
                self._flatten(contents.attribute(item, name), found, depth + 1)

    def is_leaf(self, kind):
        """@return whether objects of this type contain no tensor that tensors() finds."""
        return not (issubclass(kind, (self._tensor, *_CONTAINERS)) or _fields(kind))

    def __call__(self, tensor):
        """@return the Memory of a tensor, or None. Must run inside `with self.unobserved()`."""
        if not self.is_plain(tensor):
            tensor = self._unwrap(tensor)
        elif (found := self.memory(tensor)) is not None:
            return _new(Memory, found)
        value = self._describe(tensor) if tensor is not None else None
        if value is None:
            self.skipped += 1
        return value

    def again(self, tensor):
        """The same as a call, for a tensor that is also recorded elsewhere and counted there if it cannot be read."""
        skipped = self.skipped
        value = self(tensor)
        self.skipped = skipped
        return value

    def storage_of(self, tensor):
        """@return the number of a tensor's storage, which no other storage ever has; 0 if it cannot be read."""
        with self.unobserved():
            try:
                if not self.is_plain(tensor):
                    tensor = self._unwrap(tensor)
                return 0 if tensor is None or self.is_wrapped(tensor) else self.number_of(_storage(self.bare(tensor)))
            except Exception as error:  # a kind of tensor that has none
                signals.let_pass(error)
                return 0

    def borrows(self, tensor):
        """@return whether a tensor may lie in memory that its storage does not own: torch's own storages can be
        resized. False for an older torch, which does not say. Must run inside `with self.unobserved()`."""
        return self.has_storage(tensor) and self.is_lent(tensor.untyped_storage())

    def is_lent(self, storage):
        """The same as borrows(), for a storage."""
        return self._tells_resizable and not storage.resizable()

    def is_torchs(self, tensor):
        """@return whether torch is known to have allocated the memory of a tensor. Must run inside `with
        self.unobserved()`."""
        return self._tells_resizable and self.has_storage(tensor) and tensor.untyped_storage().resizable()

    def _unwrap(self, tensor):
        # A subclass without its own dispatch only adds methods: its memory is an ordinary tensor's.
        if contents.found_in(type(tensor), "__torch_dispatch__") is self._dispatch:
            return tensor
        tensor, is_finished = self._inside(tensor)
        return tensor if is_finished else None

    def _inside(self, tensor):
        """@return the plain tensor in a wrapper, or None; and whether it is certain that no collective is writing to it."""
        if contents.name_of(type(tensor)) == "DTensor":
            tensor = tensor._local_tensor
        is_async = contents.name_of(type(tensor)) == "AsyncCollectiveTensor"
        if is_async:
            tensor = tensor.elem
        if not self.is_plain(tensor):
            return None, False
        return tensor, not is_async or self.number_of(tensor.untyped_storage()) in self._finished

    def unfinished(self, tensor):
        """@return the Memory to which a functional collective may be writing, for a wrapper of it that the program has
        not waited for; else None. Must run inside `with self.unobserved()`."""
        if self.is_plain(tensor):
            return None
        tensor, is_finished = self._inside(tensor)
        return None if tensor is None or is_finished else self._describe(tensor)

    def finish(self, tensor):
        """Notes that the program has waited for the collective that writes to a tensor. One storage may have several
        wrappers, each with a flag of its own, so this is noted by storage.
        @return the storage's number, or None if the tensor has no memory of its own."""
        if not self.is_plain(tensor) or self.is_wrapped(tensor):
            return None
        number = self.number_of(tensor.untyped_storage())
        if len(self._finished) == _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]
        self._finished[number] = None
        return number

    def begin_again(self, tensor):
        """Reverts finish(): a functional collective is about to write to a tensor of the program."""
        if self.is_plain(tensor) and not self.is_wrapped(tensor):
            self._finished.pop(self.number_of(tensor.untyped_storage()), None)

    def on_current_stream(self, value):
        return value._replace(stream=self.raw_stream(value.index)) if value.device == CUDA else value

    def _describe(self, tensor):
        try:
            return self._memory(tensor)
        except Exception as error:  # a kind of tensor without the usual attributes, such as one batched by vmap
            signals.let_pass(error)
            self.refuse(contents.name_of(type(tensor)), error)
            return None

    def refuse(self, what, error):
        """Notes, once for each text of torch, why `what` is not read."""
        text = str(error).partition("\n")[0][:_MAX_TEXT]
        if len(self._kinds) < _MAX_KINDS and text not in self._kinds:
            self._kinds.add(text)
            self.refusals.append("%s: %s" % (what, text))

    def _memory(self, whole):
        tensor = self.bare(whole)
        if tensor.layout is not self._strided or tensor.is_nested or self.is_wrapped(whole):
            return None
        if tensor.is_cuda:
            device, index = CUDA, tensor.get_device()
            stream = self.raw_stream(index)
        elif tensor.is_cpu:
            device = index = stream = 0
        else:
            return None
        shape, strides = tensor.shape, tensor.stride()
        dtype = self.dtypes.get(tensor.dtype, _UNKNOWN)
        if dtype == _UNKNOWN:
            if tensor.dtype in self._refused:
                return None
            width = tensor.element_size()  # its bytes become one more dimension
            shape, strides = (*shape, width), tuple(s * width for s in strides) + (1,)
        if len(shape) > engine.MAX_RANK or tensor.is_neg():
            return None
        if dtype in _COMPLEX and tensor.is_conj():
            return None
        base = self.base(whole)
        if base == 0 and 0 not in shape:
            return None  # no memory: a ZeroTensor, or storage that was taken away
        data = base + tensor.storage_offset() * tensor.element_size()
        storage = _storage(tensor)
        return _new(Memory, (device, index, dtype, len(shape), version(tensor), data, self.number_of(storage),
                             base, storage.nbytes(), stream, (*shape, *strides)))


def _fields(kind):
    """@return the names of a dataclass's fields; empty for other classes."""
    fields = contents.found_in(kind, "__dataclass_fields__")
    return tuple(fields) if type(fields) is dict else ()


def scalar(value):
    """@return the number in a tensor of one element in host memory; None for other tensors."""
    kind = _NUMBERS.get(value.dtype)
    if value.device != CPU or kind is None or any(extent != 1 for extent in value.dims[:value.rank]):
        return None
    return kind.from_address(value.data).value


_NUMBERS = {1: ctypes.c_double, 2: ctypes.c_float, 11: ctypes.c_int32, 13: ctypes.c_int64}


def _storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _storage_address(tensor):
    return tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()


_version_of = operator.attrgetter("_version")  # torch's own getter, which no class overrides, once torch is known


def version(tensor):
    """@return how often torch has counted a write to the tensor (`_version`)."""
    try:
        return (tensor._version if type(tensor) is _Bare else _version_of(tensor)) & 0xFFFFFFFF
    except RuntimeError:  # inference tensors have no counter
        return 0


class WeakStorage:
    """A weak reference of C++ to a storage, which the program cannot see. A call returns the storage; None when it is gone."""

    __slots__ = ("_kind", "_pointer")

    def __init__(self, storage):
        self._kind, self._pointer = type(storage), storage._weak_ref()

    def __call__(self):
        return self._kind._new_with_weak_ptr(self._pointer)

    def __del__(self):
        self._kind._free_weak_ref(self._pointer)

"""Facts that decide the results of a program beside its tensors: classes and settings of its modules, settings of its
optimizers, states of its random generators. Each is recorded when it is first seen and when it has changed. Reading one
runs no operator of torch and no code of the program, and draws no random number."""
import ctypes
import functools
import hashlib
import operator
import os
import struct
import sys

from ..base import FOLDER, contents, engine, held, mode_of, signals, tokens, values
from ..calls import naming
from . import code_facts

_PLAIN = frozenset((bool, int, float, str, type(None)))
_MAX_TEXT, _MAX_ITEMS = 80, 16
_MAX_ATTRIBUTES = 2000  # characters of all
_POSITION_BYTES = 4  # of the position in random's words, stored before them
_MARK_BYTES = 48  # the seed or position with the first words, or the last words with the fields after them
_MT19937_WORDS = 624
_MT19937_BYTES = _MT19937_WORDS * 4 + 4  # numpy/random/src/mt19937/mt19937.h: the words, and the position in them
# The first fields of torch's get_state(): seed, words left, whether it was seeded, position, words. In the generator's own
# memory they have 8, 4, 4, 4 and 4 bytes each, followed by the kept normal numbers, including 4 bytes of padding.
_TORCH_STATE = struct.Struct("<QiiQ%dQ" % _MT19937_WORDS)
_TORCH_HEAD, _TORCH_KEPT_BYTES = struct.Struct("<QiB3xI"), 28
MAX_CHANGES = 16  # of a module's attributes
_COMPILED = "_orig_mod"  # by this name the wrapper that torch.compile returns holds a module
_MODE = "training"  # attribute of a module. It is a state of the run and no setting: an evaluation pass changes it
# Attribute of an optimizer with an object that it alone has, while it is kept here: the text that torch makes for each of them.
TOKEN = "_zero_grad_profile_name"
_SWEPT_FIRST = 64  # optimizers, before the first sweep of dead ones
_MOST_NUMBERED = 1024  # optimizers; names of settings are kept for each. Further ones share a number
_MAX_MODES = 16  # recorded changes of a module's mode


def digest(data):
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def is_plain(value):
    """@return whether equal runs give a value the same text."""
    kind = type(value)
    if kind is tuple or kind is list:
        return len(value) <= _MAX_ITEMS and all(contents.is_one_of(type(one), _PLAIN) for one in value)
    return contents.is_one_of(kind, _PLAIN) and (kind is not str or len(value) <= _MAX_TEXT)


class ModuleFacts:
    """Records facts of each module at its first call, and at the first call of a step the attributes that the program
    has set since. An attribute that keeps changing is a count or an average, not a setting."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._torch_folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self._dtype = torch.dtype
        self._autocast = _autocast_of(torch)
        self.code = code_facts.Code(torch)

    def tell(self, thread, entry, module):
        """Records a module's facts at its first call of a phase in a step. Called by the wrapper of Module.__call__; the hot path in
        C++ calls it only for an evaluation or where the attributes have changed."""
        inner = contents.value_at(contents.attribute(module, "_modules"), _COMPILED)
        module = module if inner is None else inner
        first, entry.untold = entry.untold, False
        told = not first and self._is_told(entry, module)
        evaluates = thread.slot[1] == engine.EVALUATION
        if told and not evaluates:
            return
        try:
            facts = [*self._mode(entry.place, module, evaluates), *(() if told else self._news(entry, module, first, evaluates))]
            if not facts:
                return
            batch, place = thread.batch, entry.place
            for name, value in facts:
                batch.event_fact(place.id, name, value)
            for name, value in self.code.of_class(type(module)):
                batch.fact(name, value)
            if not self._observer.capture:  # else it is sent with the module's inputs
                self._observer.submit(thread)
        except Exception as error:
            self._observer.failed("module facts", error)

    def _is_told(self, entry, module):
        """@return whether the module's attributes still are as recorded. Most are the same objects; tensors are not
        compared by value."""
        now = contents.attributes(module)
        for name, value in entry.settings:
            one = dict.get(now, name, self)
            if one is not value and (not self._is_setting(one) or one != value):
                return False
        return True

    def _news(self, entry, module, first, evaluates):
        """Facts of a module that is called for the first time, or whose attributes have changed."""
        kind, place, before = type(module), entry.place, entry.settings
        known = id(kind), contents.path_of(kind)  # a reference would keep the class
        replaces = first and place.told == known  # another module of the same class at this place
        settings = () if replaces else self._settings(module)
        mode = next((one for one in before if one[0] == _MODE), (_MODE, True))
        if not evaluates:
            mode = _MODE, dict.get(contents.attributes(module), _MODE, mode[1])
        entry.settings = (*settings, mode)  # that of its last call in training
        if replaces:
            return
        if first:
            place.told = known
            yield from self._facts(kind, settings)
            types = self._autocast()
            if types:
                yield "autocast", types
            yield from self._parameters(place, module)
        elif settings != before[:-1]:
            if entry.changes < MAX_CHANGES:
                entry.changes += 1
                yield from _attributes(settings)

    def _mode(self, place, module, evaluates):
        """Yields the module's mode where it differs from that at its last such call. The default, which is not recorded, is
        training mode in training and eval mode in evaluation."""
        bit = 2 if evaluates else 1
        unusual = bool(mode_of(module, not evaluates)) == evaluates
        if bool(place.modes & bit) == unusual or place.mode_changes > _MAX_MODES:
            return
        place.modes ^= bit
        place.mode_changes += 1
        mode = "alternating" if place.mode_changes > _MAX_MODES else "train" if unusual == evaluates else "eval"
        yield "mode.evaluation" if evaluates else "mode", mode

    def _parameters(self, place, module):
        """Yields the names of a module's parameters that require no gradient, and of those that belong to another module, too."""
        owners, frozen, tied = self._observer.names.owners, [], []
        for name, parameter in held(module, "_parameters"):
            if parameter is None:
                continue
            with self._observer.read.unobserved():
                if not self._observer.read.bare(parameter).requires_grad:
                    frozen.append(name)
            owner = owners.get(id(parameter))
            if (owner is not None and not owner.by_position and (owner.place is not place or owner.name != name)
                    and self._is_of(owner, parameter)):
                tied.append("%s=%s" % (name, naming.join(owner.place.name, owner.name)))
        for fact, names in (("frozen", frozen), ("tied", tied)):
            if names:
                yield fact, _within_limit(", ".join(names))

    def _is_of(self, owner, parameter):
        """@return whether `owner` still describes this parameter. It does not if its own parameter is gone and a stand-in
        tensor (torch.func.functional_call, ExpandedWeight) has the same address during the call."""
        return 0 != owner.storage == self._observer.read.storage_of(parameter)

    def _facts(self, kind, settings):
        yield "class", contents.path_of(kind)
        forward = code_facts.forward_of(kind)
        if forward is not None:
            yield "forward", self.code.place(forward.co_filename, forward.co_firstlineno)
        line = self.line_of_program()
        if line:
            yield "call", line
        yield from _attributes(settings)

    def line_of_program(self):
        """@return file and line of the innermost frame that is neither torch's nor the observer's; "" without one"""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((FOLDER, self._torch_folder)):
            frame = frame.f_back
        return self.code.place(frame.f_code.co_filename, frame.f_lineno) if frame is not None else ""

    def _settings(self, module):
        return tuple((name, value) for name, value in contents.items(contents.attributes(module))
                     if type(name) is str and name[:1] != "_" and name != _MODE and self._is_setting(value))

    def _is_setting(self, value):
        return is_plain(value) or type(value) is self._dtype


def _autocast_of(torch):
    """@return a function that gives the types to which autocast casts now, as `cpu=torch.bfloat16`; "" where it is off"""
    try:
        torch.is_autocast_enabled("cpu")
    except TypeError:  # before 2.4: a function for each device
        enabled = {"cpu": torch.is_autocast_cpu_enabled, "cuda": torch.is_autocast_enabled}
        types = {"cpu": torch.get_autocast_cpu_dtype, "cuda": torch.get_autocast_gpu_dtype}
    else:
        enabled = {device: functools.partial(torch.is_autocast_enabled, device) for device in ("cpu", "cuda")}
        types = {device: functools.partial(torch.get_autocast_dtype, device) for device in enabled}
    return lambda: ", ".join("%s=%s" % (device, types[device]()) for device in enabled if enabled[device]())


def _attributes(settings):
    text = ", ".join(sorted("%s=%r" % one for one in settings))
    if text:
        yield "attributes", _within_limit(text)


def _within_limit(text):
    """@return the text of a list, without the items that do not fit whole within the limit."""
    return text if len(text) <= _MAX_ATTRIBUTES else text[:_MAX_ATTRIBUTES].rpartition(", ")[0]


class _Group:
    """The recorded state of a parameter group: its settings by name. If all settings are immutable, also its keys, the
    position of "params" among them, and the objects at the other keys."""

    __slots__ = ("settings", "keys", "at", "objects")

    def __init__(self):
        self.settings, self.keys, self.at, self.objects = {}, None, 0, ()

    def is_told(self, group):
        """@return whether the group still has the recorded settings: the same immutable objects. Compared by identity, since
        `==` of a tensor is an operator."""
        if self.keys is None or dict.__len__(group) != len(self.keys):
            return False
        objects = list(dict.values(group))
        del objects[self.at]
        return all(map(operator.is_, dict.keys(group), self.keys)) and all(map(operator.is_, objects, self.objects))

    def keep(self, settings, group):
        self.settings, self.keys, self.objects = settings, None, ()
        keys, objects = tuple(dict.keys(group)), list(dict.values(group))
        at = next((index for index, key in enumerate(keys) if type(key) is str and key == "params"), None)
        if at is None:
            return
        del objects[at]
        if all(contents.is_one_of(type(one), _PLAIN) or type(one) is tuple and is_plain(one) for one in objects):
            self.keys, self.at, self.objects = keys, at, objects


class _Optimizer:
    """The recorded state of an optimizer. `number`: None if it shares one. `groups`: a _Group for each parameter group."""

    __slots__ = ("number", "groups")

    def __init__(self, number, groups):
        self.number, self.groups = number, groups


class OptimizerFacts:
    """Records the settings of each optimizer at the beginning of its step."""

    def __init__(self, observer):
        self._observer = observer
        self._known = {}  # id of an optimizer's token -> (the token, its _Optimizer)
        self._count, self._most = 0, _SWEPT_FIRST
        self._groups_of_further = []

    def meet(self, optimizer, token):
        """`token`: its attribute TOKEN. @return (its _Optimizer, whether it is seen for the first time)"""
        if token is None:
            token = type(optimizer)
        known = self._known.get(id(token))
        if known is not None:
            return known[1], False
        if len(self._known) >= self._most:
            tokens.forget_dead(self._known)
            self._most = max(_SWEPT_FIRST, 2 * len(self._known))
        further = self._count >= _MOST_NUMBERED
        if self._count == _MOST_NUMBERED:
            self._observer.say(engine.WARNING, "CT-1305 %d optimizers have numbers; further ones share one" % self._count)
        known = _Optimizer(None, self._groups_of_further) if further else _Optimizer(self._count, [])
        self._known[id(token)] = token, known
        self._count += 1
        return known, True

    def tell(self, batch, optimizer, all_groups, known):
        """`all_groups`: its parameter groups"""
        number, groups = _MOST_NUMBERED if known.number is None else known.number, known.groups
        if not groups:
            batch.event_fact(0, "optimizer.%d.class" % number, contents.path_of(type(optimizer)))
            for name, value in self._observer.module_facts.code.of_class(type(optimizer)):
                batch.fact(name, value)
        if not issubclass(type(all_groups), list):  # a property of the program would run
            if not groups:
                batch.event_fact(0, "optimizer.%d.unread" % number, "param_groups")
            groups[:] = _Group(),
            return
        for index, group in enumerate(contents.elements(all_groups)):
            if not issubclass(type(group), dict):
                return
            if index == len(groups):
                groups.append(_Group())
                self._tell_members(batch, number, index, contents.value_at(group, "params"))
            known = groups[index]
            if known.is_told(group):
                continue
            objects = {name: value for name, value in contents.items(group)
                       if type(name) is str and name != "params"}
            settings = {name: value if contents.is_one_of(type(value), _PLAIN) else self._text(value)
                        for name, value in objects.items()}
            for name, value in settings.items():
                if name not in known.settings or known.settings[name] != value:
                    text = value if type(value) is str else repr(value)
                    batch.event_fact(0, "optimizer.%d.%d.%s" % (number, index, name), text[:1000])
            known.keep(settings, group)

    def _tell_members(self, batch, number, index, parameters):
        """Records the group of each parameter: programs number equal groups in other orders, and divide them otherwise."""
        for position, parameter in enumerate(contents.elements(parameters)):
            if not self._observer.read.is_leaf(type(parameter)):
                owner = self._observer.names.owner(parameter, index, position)
                batch.event_fact(owner.place.id, "group." + owner.name, "%d.%d" % (number, index))

    def _text(self, value):
        """@return the text of a value that may contain numbers, flags or texts. A tensor is read if it is on the CPU."""
        if type(value) is tuple or type(value) is list:
            return "(%s)" % ", ".join(
                repr(one) if contents.is_one_of(type(one), _PLAIN) else self._text(one) for one in value)
        if issubclass(type(value), float):  # numpy's
            return repr(float.__float__(value))
        tensor = self._observer.read.tensors(value)
        if not tensor:
            return contents.name_of(type(value))
        with self._observer.read.unobserved():
            memory = self._observer.read(tensor[0])
        number = values.scalar(memory) if memory is not None else None
        return "tensor" if number is None else repr(number)


class Generators:
    """Records hashes of the states of random generators. A state whose mark is unchanged is not read."""

    def __init__(self, torch, unobserved, marks):
        self._torch = torch
        self._unobserved = unobserved
        self._marks, self._told = marks, (None,) * 4  # the marks of the recorded states
        self._last = {}
        self._numpy_keeps = False  # a normal number, whose use does not change the marks

    def tell(self, batch):
        marks = self._marks.read()
        if marks == self._told and None not in marks and not self._numpy_keeps:
            return
        told, self._told = self._told, marks
        for read, mark, before in zip((self._of_torch, self._of_cuda, self._of_python, self._of_numpy), marks, told):
            if mark is not None and mark == before and not (self._numpy_keeps and read == self._of_numpy):
                continue
            try:
                for name, state in read():
                    if self._last.get(name) != state:
                        self._last[name] = state
                        batch.event_fact(0, name, state)
            except Exception as error:  # another version of what it reads
                signals.let_pass(error)

    def _of_torch(self):
        yield "rng.torch", digest(_content_of(self._torch.default_generator, self._unobserved))

    def _of_cuda(self):
        for index, state in enumerate(_cuda_states(self._torch.cuda) or ()):
            yield "rng.cuda:%d" % index, digest(state.encode())

    def _of_python(self):
        random = sys.modules.get("random")
        if random is not None:
            _, words, next_gauss = random.getstate()
            yield "rng.python", "%016x" % (hash((words, next_gauss or 0.0)) & 0xFFFFFFFFFFFFFFFF)

    def _of_numpy(self):
        random = sys.modules.get("numpy.random")
        if random is not None:
            _, words, *rest = random.get_state()
            yield "rng.numpy", digest(words.tobytes() + repr(rest).encode())
            self._numpy_keeps = rest[1] != 0


class Marks:
    """Marks that change with each draw from a generator, cheaper to read than its state: the position, some words that
    change when the position starts over, and the kept normal number (except numpy's)."""

    def __init__(self, torch, unobserved):
        self._torch, self._unobserved = torch, unobserved
        # (generator, where its marks lie)
        self._cpu, self._python, self._numpy = (None, None), (None, None), (None, ())

    def read(self):
        """@return one comparable mark each for torch's generator on the CPU, those on GPUs, Python's and numpy's; None for a
        generator that exists but whose mark cannot be read."""
        try:
            return self._of_torch(), self._of_cuda(), self._of_python(), self._of_numpy()
        except Exception as error:
            signals.let_pass(error)
            return tuple(map(self._mark, (self._of_torch, self._of_cuda, self._of_python, self._of_numpy)))

    def _mark(self, read):
        try:
            return read()
        except Exception as error:  # another version of what it reads
            signals.let_pass(error)
            return None

    def _of_torch(self):
        generator, where = self._cpu
        current = self._torch.default_generator
        if generator is not current:
            where = _torch_memory(self._torch, current, _content_of(current, self._unobserved))
            self._cpu = current, where
        if where is not None:
            first, last = where
            return first.raw, last.raw
        content = _content_of(current, self._unobserved)
        return content[:_MARK_BYTES], content[-_MARK_BYTES:]

    def _of_cuda(self):
        return _cuda_states(self._torch.cuda)

    def _of_python(self):
        random = sys.modules.get("random")
        if random is None:
            return ()
        generator, where = self._python
        if generator is None or generator is not random._inst:
            generator, address = _python_memory(random)
            where = _mark_at(address)
            self._python = generator, where
        return where.raw, generator.gauss_next

    def _of_numpy(self):
        random = sys.modules.get("numpy.random")
        if random is None:
            return ()
        generator, where = self._numpy
        current = random.get_bit_generator()  # numpy 1.24
        if generator is not current:
            address = _numpy_address(current)
            where = _mark_at(address), _mark_at(address + _MT19937_BYTES - _MARK_BYTES)
            self._numpy = current, where
        first, last = where
        return first.raw, last.raw


def _mark_at(address):
    return (ctypes.c_char * _MARK_BYTES).from_address(address)


def _cuda_states(cuda):
    """@return seeds and offsets as texts; None during the capture of a graph, when they cannot be read."""
    if not cuda.is_initialized():
        return ()
    if cuda.is_current_stream_capturing():
        return None
    return ["%d+%d" % (generator.initial_seed(), generator.get_offset()) for generator in cuda.default_generators]


def _content_of(generator, unobserved):
    """@return the state of one of torch's generators."""
    with unobserved():
        state = generator.get_state()
        return ctypes.string_at(state.data_ptr(), state.nbytes)


def _torch_memory(torch, generator, content):
    """@return the memory of the marks of torch's CPU generator, whose get_state() makes a tensor each time; None if its
    layout is not the expected one. `content`: its state."""
    if type(generator) is not torch._C.Generator or len(content) < _TORCH_STATE.size:
        return None
    begin = generator._cdata
    seed, left, seeded, position, *words = _TORCH_STATE.unpack_from(content)
    words = struct.pack("<%dI" % len(words), *words)
    # The object is at least as long as the words that it contains, and the fields before them are short.
    at = ctypes.string_at(begin, len(words)).find(words[:len(words) // 2])
    before = at - _TORCH_HEAD.size
    if before < 0 or ctypes.string_at(begin + at, len(words)) != words:
        return None
    if _TORCH_HEAD.unpack(ctypes.string_at(begin + before, _TORCH_HEAD.size)) != (seed, left, seeded, position):
        return None
    return _mark_at(begin + before), _mark_at(begin + at + len(words) + _TORCH_KEPT_BYTES - _MARK_BYTES)


def _python_memory(random):
    """@return (generator, address) of the position of Python's generator, which its words follow; (None, None) if they do not
    lie in that object. Reading them there takes a tenth of the time of getstate(), which makes an int of each word."""
    generator = getattr(random, "_inst", None)
    if type(generator) is not random.Random or sys.implementation.name != "cpython":
        return None, None
    *words, position = generator.getstate()[1]
    memory = ctypes.string_at(id(generator), object.__sizeof__(generator))
    at = memory.find(struct.pack("<%dI" % len(words), *words))
    before = at - _POSITION_BYTES
    if at < 0 or memory[before:at] != struct.pack("<i", position):
        return None, None
    return generator, id(generator) + before


def _numpy_address(generator):
    return generator.ctypes.state_address if type(generator).__name__ == "MT19937" else None

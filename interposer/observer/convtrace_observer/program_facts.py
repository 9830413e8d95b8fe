"""What decides the results of a program and is no tensor: the class and the settings of its modules, the
settings of its optimizers, the states of random generators. Each is recorded when it is first seen and when it
changed, and read without an operator of torch, a call of the program's code or a random number."""
import ctypes
import hashlib
import os
import sys
import weakref

from . import code_facts, signals, values

_PLAIN = (bool, int, float, str, type(None))
_MAX_TEXT, _MAX_ITEMS = 80, 16
_MAX_ATTRIBUTES = 2000  # characters of all
# Of the module's life, not of its making: an evaluation pass changes it.
_STATE = "training"
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


def digest(data):
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def is_plain(value):
    """Whether a value's text is the same in every run that does the same."""
    if type(value) in (tuple, list):
        return len(value) <= _MAX_ITEMS and all(type(one) in _PLAIN for one in value)
    return type(value) in _PLAIN and (type(value) is not str or len(value) <= _MAX_TEXT)


class ModuleFacts:
    """Of each module at its first call."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._torch_folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self._dtype = torch.dtype
        self._code = code_facts.Code(torch)

    def tell(self, thread, entry, module):
        """To be called by the wrapper of Module.__call__."""
        entry.untold = False
        kind, place = type(module), entry.place
        if place.told is kind:
            return  # made anew, or another of the same class at this place
        place.told = kind
        try:
            batch = thread.batch
            for name, value in self._facts(kind, module):
                batch.event_fact(place.id, name, value)
            for name, value in self._code.of_class(kind):
                batch.fact(name, value)
            if not self._observer.capture:  # else it goes with the module's inputs
                self._observer.submit(thread)
        except Exception as error:
            self._observer.failed("module facts", error)

    def _facts(self, kind, module):
        yield "class", kind.__module__ + "." + kind.__qualname__
        forward = code_facts.code_of(getattr(kind, "forward", None))
        if forward is not None:
            yield "forward", self._code.place(forward.co_filename, forward.co_firstlineno)
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((_OWN_FOLDER, self._torch_folder)):
            frame = frame.f_back
        if frame is not None:
            yield "call", self._code.place(frame.f_code.co_filename, frame.f_lineno)
        attributes = sorted(
            "%s=%r" % one for one in vars(module).items()
            if one[0][0] != "_" and one[0] != _STATE and (is_plain(one[1]) or type(one[1]) is self._dtype))
        if attributes:
            text = ", ".join(attributes)
            yield "attributes", text if len(text) <= _MAX_ATTRIBUTES else text[:_MAX_ATTRIBUTES].rpartition(", ")[0]


class OptimizerFacts:
    """The settings of each optimizer at the begin of its step."""

    def __init__(self, observer):
        self._observer = observer
        self._known = weakref.WeakKeyDictionary()  # optimizer -> [number, settings by group]
        self._count = 0

    def tell(self, batch, optimizer):
        known = self._known.get(optimizer)
        if known is None:
            known = self._known[optimizer] = [self._count, []]
            self._count += 1
            kind = type(optimizer)
            batch.event_fact(0, "optimizer.%d.class" % known[0], kind.__module__ + "." + kind.__qualname__)
        number, groups = known
        for index, group in enumerate(optimizer.param_groups):
            settings = {key: value if type(value) in _PLAIN else self._text(value)
                        for key, value in group.items() if key != "params"}
            if index == len(groups):
                groups.append({})
            before = groups[index]
            if settings == before:
                continue
            for key, value in settings.items():
                if key not in before or before[key] != value:
                    text = value if type(value) is str else repr(value)
                    batch.event_fact(0, "optimizer.%d.%d.%s" % (number, index, key), text[:1000])
            groups[index] = settings

    def _text(self, value):
        """Of a value that is no number, flag or text, but maybe made of some. Tensors on a CPU are read."""
        if type(value) in (tuple, list):
            return "(%s)" % ", ".join(repr(one) if type(one) in _PLAIN else self._text(one) for one in value)
        if isinstance(value, float):  # numpy's
            return repr(float(value))
        tensor = self._observer.read.tensors(value)
        if not tensor:
            return type(value).__name__
        with self._observer.read.unobserved():
            memory = self._observer.read(tensor[0])
        number = values.scalar(memory) if memory is not None else None
        return "tensor" if number is None else repr(number)


class Generators:
    """Hashes of the states that random numbers are drawn from."""

    def __init__(self, torch, unobserved):
        self._torch = torch
        self._unobserved = unobserved
        self._last = {}

    def tell(self, batch):
        for read in (self._of_torch, self._of_cuda, self._of_python, self._of_numpy):
            try:
                for name, state in read():
                    if self._last.get(name) != state:
                        self._last[name] = state
                        batch.event_fact(0, name, state)
            except Exception as error:  # another version of what it reads
                signals.let_pass(error)

    def _of_torch(self):
        with self._unobserved():
            state = self._torch.default_generator.get_state()
            yield "rng.torch", digest(ctypes.string_at(state.data_ptr(), state.nbytes))

    def _of_cuda(self):
        cuda = self._torch.cuda
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            for index, generator in enumerate(cuda.default_generators):
                state = "%d+%d" % (generator.initial_seed(), generator.get_offset())
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

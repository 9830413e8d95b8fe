"""Names modules and parameters: by the path from the root, as named_modules() gives it.

A module that is called while no other is running is a root, or part of one that an object holds (holders.py); the tree
of the root is walked once. The first with parameters, and whatever contains it, has no name of its own: its children are
"encoder", "decoder". A further one goes by its class: "Discriminator.encoder", "Discriminator#2.encoder"; one of several
that an object holds by its attribute: "disc.encoder".

Names of two programs must be comparable, so wrappers that only hold one module (DDP, FSDP, torch.compile,
checkpoint) do not appear in them: the wrapper itself takes the place of what it holds.

Nothing of ours is stored on modules and parameters, refers to them, or keeps them alive: a program may count weak
references, and torch.utils.swap_tensors refuses tensors that have one. A module is known by its address while it has the
same set of names of non-persistent buffers, or, where the program has given it another set, the same dictionary of hooks
that take keywords: objects that no other module has, except shallow copies, and that hold texts and numbers only. While
these are kept here, a later module at that address has others. A module is asked for its parameters at each call of a root
in a step with values. Until the next step a parameter is known by its address, and later by the number of its storage.
"""
import collections
import itertools
import sys

from ..base import contents, engine, held, own, weight_marks
from . import padding

# Attribute names that only wrappers use.
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# A common attribute name, which marks a wrapper only in the classes of _WRAPPERS.
_WRAPPED_IF_KNOWN = "module"
_MARKS = (*_WRAPPED, _WRAPPED_IF_KNOWN)
_WRAPPERS = frozenset((
    "AveragedModel", "DataParallel", "DeepSpeedEngine", "DistributedDataParallel", "Float16Module",
    "FullyShardedDataParallel", "PipelineEngine", "ShardedDataParallel"))
_MAX_SEARCHES = 16
_MAX_PLACES = 1 << 17  # beyond them, further models of a class share one name
_SWEPT_FIRST = 1024  # modules, and parameters, before the first sweep of dead ones


class Place:
    """A qualified name and the number of its calls. Modules with equal names share it, so a module that is created
    in every forward is one place."""

    __slots__ = ("name", "id", "step", "calls", "recomputes", "inputs", "parameters", "told", "modes", "mode_changes")

    def __init__(self, name, number):
        self.name, self.id = name, number
        self.told = None  # class of the module whose facts were recorded
        self.modes = self.mode_changes = 0  # of calls of training (1), evaluation (2): the mode is unusual
        self.step = -1
        self.reset(-1)

    def reset(self, step):
        self.step = step
        self.calls = self.recomputes = self.inputs = 0
        self.parameters = {}


class Entry:
    """The state of one module object."""

    __slots__ = ("token", "spare", "address", "place", "wrapper", "root", "searches", "seen_in_step",
                 "pad_index", "untold", "settings", "changes", "buffers", "weights", "rests", "unrecorded")

    def __init__(self, token, spare, address, place, wrapper, root, pad_index):
        self.token, self.spare, self.address = token, spare, address  # of the module
        self.place = place
        self.wrapper = wrapper  # Entry of the outermost module that only wraps this one
        self.root = root or self  # Entry of the root module whose walk named it
        self.searches = 0
        self.seen_in_step = -1
        self.pad_index = pad_index  # of an embedding, or None
        self.untold = True  # its facts are not recorded yet
        self.settings = ()  # (name, value) of its attributes at the last record
        self.changes = 0  # number of records after a change
        self.buffers = None  # their state at the last check
        self.weights = None  # of a root: the versions of its parameters at the last call (optimizer.py)
        self.rests = 0  # of a root: further calls without that check
        self.unrecorded = False  # of a root: it has parameters whose first values are not recorded yet


class Owner:
    """The module and name of a parameter, and its state."""

    __slots__ = ("seen", "storage", "place", "name", "parameter_slot", "gradient_slot", "recorded",
                 "by_position", "memory", "content")

    def __init__(self, storage, place, name, parameter_slot, gradient_slot):
        self.seen = 0  # State.walk when the object at this address was last found to be the parameter
        self.storage = storage  # its number at that time; 0: unknown
        self.place = place
        self.name = name
        self.parameter_slot = parameter_slot
        self.gradient_slot = gradient_slot
        self.recorded = False
        self.by_position = False  # in the optimizer, until a module with it is met
        self.memory = self.content = 0  # as recorded last (weight_marks.py); 0: never


def token(module):
    """@return an object that only this module (and its shallow copies) has, and that holds no module and no tensor; or None."""
    try:
        return own(module, "_non_persistent_buffers_set")
    except AttributeError:
        return None


def spare_token(module):
    """@return a second token, for a module whose first one the program has replaced: it seldom replaces both."""
    try:
        return own(module, "_forward_hooks_with_kwargs")
    except AttributeError:  # torch 1.13
        return None


def _inner_name(module):
    """@return the name of the attribute with the module that `module` only wraps, or None."""
    try:
        children = own(module, "_modules")
    except AttributeError:  # it was not set up
        return None
    if not issubclass(type(children), dict) or dict.keys(children).isdisjoint(_MARKS):
        return None
    name = next(name for name in _MARKS if dict.__contains__(children, name))
    if name == _WRAPPED_IF_KNOWN and not any(contents.name_of(kind) in _WRAPPERS for kind in contents.mro_of(type(module))):
        return None
    return name


def unwrapped(module):
    """@return the module inside of all its wrappers."""
    while (name := _inner_name(module)) is not None:
        module = dict.__getitem__(own(module, "_modules"), name)
    return module


def walk(module, name=""):
    """Yields (name, module, wrapper) of the tree, parents first, each module once under its first name."""
    seen = set()
    pending = [(name, module, None)]
    while pending:
        name, module, wrapper = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module, wrapper
        inner = _inner_name(module)
        children = [
            (name, child, module) if child_name == inner else (join(name, child_name), child, None)
            for child_name, child in held(module, "_modules") if child is not None]
        pending.extend(reversed(children))


def is_lazy(parameter):
    return contents.found_in(type(parameter), "cls_to_become") is not None  # torch.nn.parameter.UninitializedTensorMixin


def join(parent, child):
    return parent + "." + child if parent else child


def _is_in(tree, entry):
    """@return whether the module of `entry` is in `tree`. `tree`: modules by address."""
    module = tree.get(entry.address)
    return module is not None and _is_of(entry, module)


def _is_of(entry, module):
    """@return whether an entry at a module's address belongs to the module. If so, it afterwards has the module's token, which
    C++ reads."""
    known = token(module)
    if known is None:
        return False  # it was not set up
    if entry.token is known:
        return True
    if entry.spare is None or entry.spare is not spare_token(module):
        return False
    entry.token = known
    return True


class Names:
    """All modules and parameters seen so far."""

    def __init__(self, observer):
        self._observer = observer
        self._places = {}
        self._first = None  # Entry of the root that has no name
        self._claims = itertools.count()  # roots that would be it: of several threads one gets 0
        self._roots_of_kind = {}
        self.entries = {}  # id(module) -> Entry, of another module if the token differs; read at every module call
        self.owners = {}  # id(parameter) -> Owner
        self._most_entries, self._most_owners = _SWEPT_FIRST, _SWEPT_FIRST  # before the next sweep
        self._ended = False  # the limit of names was reported

    def clear(self):
        self._places.clear()
        self._first, self._claims = None, itertools.count()
        self._roots_of_kind.clear()
        self.entries.clear()
        self.owners.clear()

    def place(self, name):
        place = self._places.get(name)
        if place is None:
            place = self._places.setdefault(name, Place(name, self._observer.port.intern(name)))  # other threads make it, too
        return place

    def name_of(self, number):
        """@return the module path of a scope id."""
        return next((name for name, place in self._places.items() if place.id == number), "")

    def entry(self, module):
        """@return the Entry of a module, or None."""
        entry = self.entries.get(id(module))
        return entry if entry is not None and _is_of(entry, module) else None

    def by_address(self):
        """@return {id(module): Entry} of the live modules."""
        self._forget_dead_modules()
        return self.entries

    def add_root(self, module, attribute=None):
        """Names the tree of a module that was called at top level, or has a part that was.
        @param attribute  the name of the holder's attribute, if the root is named by it, or None

        An earlier root that is part of this tree (an encoder called alone before the whole model) gets
        its longer name; a module that two roots share keeps its first name.
        """
        self._observer.walk += 1
        tree = {id(child): child for _, child, _ in walk(module)}
        inner = unwrapped(module)
        kind = attribute or contents.name_of(type(inner))
        learns = any(one is not None for child in tree.values() for _, one in held(child, "_parameters"))
        number = self._number(kind) if learns else None
        is_first, root = _is_in(tree, self._first) if self._first is not None else not learns or next(self._claims) == 0, None
        name = "" if is_first and not attribute else self._root_name(inner, kind, number)
        for child_name, child, wrapper in list(walk(module, name)):
            entry = self.entry(child)
            if entry is None or _is_in(tree, entry.root):
                entry = self._add(child, child_name, wrapper, root)
            root = root or entry
        if is_first and learns:
            self._first = self.entry(inner)
        return root

    def _root_name(self, module, kind, number):
        """@return the name of a root other than the first. `number`: its number among the roots of the same class or
        attribute; None for one without parameters (a criterion, a transform made anew in each step)."""
        known = self.entry(module)
        if known is not None:
            return known.place.name  # it was called without its wrapper, or in another
        return kind if number in (None, 1) else "%s#%s" % (kind, number)

    def _number(self, kind):
        """@return the number of a further root of a kind. Dead roots keep their numbers, since two runs collect garbage at
        different times."""
        if len(self._places) >= _MAX_PLACES:
            if not self._ended:
                self._ended = True
                self._observer.say(engine.WARNING, "CT-1305 %d modules have names; further models of a class are one, CLASS#more"
                                   % len(self._places))
            return "more"
        return next(self._roots_of_kind.setdefault(kind, itertools.count(1)))

    def add_called(self, module, caller, parent):
        """Names a module that is in no tree yet but was called inside `caller`: it was attached
        later, or is kept where named_modules() does not look (then its class is its name).
        @param parent  the module of `caller`, or None if unknown"""
        self._observer.walk += 1
        name = caller.place.name
        if parent is not None and caller.searches < _MAX_SEARCHES:
            for child_name, child, wrapper in walk(parent, name):
                if child is module:
                    return self._add(module, child_name, wrapper, caller.root)
            caller.searches += 1
        added = None
        for child_name, child, wrapper in walk(module, join(name, contents.name_of(type(module)))):
            entry = self.entry(child)
            if entry is None:
                entry = self._add(child, child_name, wrapper, caller.root)
            added = added or entry
        return added

    def _add(self, module, name, wrapper, root):
        if len(self.entries) >= self._most_entries:
            self._forget_dead_modules()
        former = self.entry(module)
        outer = self.entry(wrapper) if wrapper is not None else None
        entry = Entry(token(module), spare_token(module), id(module), self.place(name), outer and outer.wrapper or outer, root,
                      padding.index_of(module))
        self.entries[id(module)] = entry
        for parameter_name, parameter in held(module, "_parameters"):
            if parameter is not None:
                self.own(parameter, entry, parameter_name, former and former.place)
        return entry

    def _forget_dead_modules(self):
        """Drops the entries of dead modules: those whose tokens only the entries themselves refer to."""
        alone = Entry(set(), {}, 0, None, None, None, None)
        others = sys.getrefcount(alone.token) - 1
        entries = list(self.entries.items())  # other threads add to it
        known = collections.Counter(id(one) for _, entry in entries for one in (entry.token, entry.spare))
        for key, entry in entries:
            if (sys.getrefcount(entry.token) == others + known[id(entry.token)]
                    and (entry.spare is None or sys.getrefcount(entry.spare) == others + known[id(entry.spare)])):
                self.entries.pop(key, None)
        self._most_entries = max(_SWEPT_FIRST, 2 * len(self.entries))

    def own(self, parameter, entry, name, former=None):
        """Notes that a module has a parameter. `former`: the place of the module before it got a new name.

        Tied weights keep their first name. The Owner of a dead parameter with the same address is recognized by its
        other storage."""
        observer, place, owner = self._observer, entry.place, self.owners.get(id(parameter))
        storage = observer.read.storage_of(parameter)
        is_known = owner is not None and (owner.seen == observer.walk or 0 != owner.storage == storage)
        if owner is not None and owner.place is place and owner.name == name:
            owner.storage = storage  # a program may put other memory into a parameter (.data = ...)
        elif not is_known or owner.by_position or owner.place is former:
            recorded = is_known and owner.recorded
            owner = self._new_owner(parameter, storage, place, name)
            owner.recorded = recorded
        owner.seen = observer.walk

    def _new_owner(self, parameter, storage, place, name):
        if len(self.owners) >= self._most_owners:
            self._forget_old_owners()
        intern = self._observer.port.intern
        owner = self.owners[id(parameter)] = Owner(storage, place, name, intern("param:" + name), intern("grad:" + name))
        return owner

    def _forget_old_owners(self):
        """Drops the owners that were not met in this step. Their modules are asked again when needed."""
        for key, owner in list(self.owners.items()):
            if owner.seen < self._observer.step_walk:
                self.owners.pop(key, None)
        self._most_owners = max(_SWEPT_FIRST, 2 * len(self.owners))

    def owner(self, parameter, group, index):
        """@return the Owner of an optimizer's parameter. A parameter that no module has is named by its position."""
        observer, owner = self._observer, self.owners.get(id(parameter))
        if owner is None or owner.seen < observer.step_walk:
            storage = observer.read.storage_of(parameter)
            if owner is None or not storage or owner.storage != storage:
                owner = self._new_owner(parameter, storage, self.place(""), "group%d.%d" % (group, index))
                owner.by_position = True
            owner.seen = observer.walk
        return owner

    def ask(self, root, compares):
        """Asks the modules of a root which parameters they have, in a step with values: a program may have replaced them
        (load_state_dict(assign=True), swap_tensors, fully_shard).
        @return [(parameter, owner)] of those that were written since their last record, if `compares`; None if there are none"""
        self._observer.walk += 1
        seen = []
        for entry, module in self.modules(root):
            for name, parameter in held(module, "_parameters"):
                if parameter is None:
                    continue
                owner = self.owners.get(id(parameter))
                if owner is not None and owner.place is entry.place and owner.name == name:
                    if owner.seen != self._observer.walk:
                        seen.append((parameter, owner))
                    owner.seen = self._observer.walk
                elif owner is None or owner.seen != self._observer.walk:
                    self.own(parameter, entry, name)
        with self._observer.read.unobserved():
            return [one for one in seen if weight_marks.is_written(self._observer, *one)] or None if compares else None

    def modules(self, root):
        """Yields (entry, module) of the tree, in order."""
        for _, module, _ in walk(root):
            entry = self.entry(module)
            if entry is not None:
                yield entry, module

    def parameters(self, root):
        """Yields (parameter, owner) of the tree, in order."""
        for _, module, _ in walk(root):
            for _, parameter in held(module, "_parameters"):
                owner = self.owners.get(id(parameter)) if parameter is not None else None
                if owner is not None:
                    yield parameter, owner

    def unrecorded_parameters(self, root):
        """@return [(parameter, owner)] of the tree that were not returned before, in order; and whether lazy modules have more.

        A module with a parameter that has neither shape nor memory before its first forward is lazy: its other
        parameters may be uninitialized memory (torch_geometric.nn.Linear)."""
        found, lazy = [], False
        for _, module, _ in walk(root):
            parameters = [one for _, one in held(module, "_parameters") if one is not None]
            if any(map(is_lazy, parameters)):
                lazy = True
                continue
            for parameter in parameters:
                owner = self.owners.get(id(parameter))
                if owner is not None and not owner.recorded:
                    owner.recorded = True
                    found.append((parameter, owner))
        return found, lazy

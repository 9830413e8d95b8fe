"""Which name each module and parameter has: its path from the root, as named_modules() gives it.

A module that is called while no other is running is a root; its tree is walked once. The first with
parameters, and whatever contains it, has no name of its own: its children are "encoder", "decoder". A
further one goes by its class: "Discriminator.encoder", "Discriminator#2.encoder".

Names of two programs must be comparable, so wrappers that only hold one module (DDP, FSDP, torch.compile,
checkpoint) do not appear in them: the wrapper itself takes the place of what it holds.

Nothing is stored on modules (it would be pickled and copied with them) and nothing keeps them
alive.
"""
import weakref

from . import padding

# Attribute names that only wrappers use ...
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# ... and one that anybody may use: it marks a wrapper only in these classes.
_WRAPPED_IF_KNOWN = "module"
_WRAPPERS = frozenset((
    "AveragedModel", "DataParallel", "DeepSpeedEngine", "DistributedDataParallel", "Float16Module",
    "FullyShardedDataParallel", "PipelineEngine", "ShardedDataParallel"))
_MAX_SEARCHES = 16
_MAX_ROOTS = 16  # of one class that have names of their own


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
    """One module object."""

    __slots__ = ("reference", "place", "wrapper", "root", "searches", "seen_in_step",
                 "pad_index", "untold", "settings", "changes", "buffers")

    def __init__(self, reference, place, wrapper, root, pad_index):
        self.reference = reference
        self.place = place
        self.wrapper = wrapper  # Entry of the outermost module that only wraps this one
        self.root = root  # id of the root module whose walk named it
        self.searches = 0
        self.seen_in_step = -1
        self.pad_index = pad_index  # of an embedding, or None
        self.untold = True  # its facts are not recorded yet
        self.settings = ()  # (name, value) of its attributes at the last record
        self.changes = 0  # number of records in which they had changed
        self.buffers = None  # their state at the last check


class Owner:
    """Where a parameter lives."""

    __slots__ = ("reference", "place", "name", "parameter_slot", "gradient_slot", "recorded",
                 "by_position")

    def __init__(self, reference, place, name, parameter_slot, gradient_slot):
        self.reference = reference
        self.place = place
        self.name = name
        self.parameter_slot = parameter_slot
        self.gradient_slot = gradient_slot
        self.recorded = False
        self.by_position = False  # in the optimizer, until a module with it is met


class _KeyedReference(weakref.ref):
    __slots__ = ("key",)

    def __new__(cls, target, callback, key):
        return super().__new__(cls, target, callback)

    def __init__(self, target, callback, key):
        super().__init__(target, callback)
        self.key = key


def _inner_name(module):
    """Name of the attribute that `module` only wraps, or None."""
    children = module._modules
    for name in _WRAPPED:
        if name in children:
            return name
    if _WRAPPED_IF_KNOWN in children:
        if any(kind.__name__ in _WRAPPERS for kind in type(module).__mro__):
            return _WRAPPED_IF_KNOWN
    return None


def walk(module, name=""):
    """(name, module, wrapper) of the tree, parents first, each module once under its first name."""
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
            for child_name, child in module._modules.items() if child is not None]
        pending.extend(reversed(children))


def is_lazy(parameter):
    return hasattr(type(parameter), "cls_to_become")  # torch.nn.parameter.UninitializedTensorMixin


def join(parent, child):
    return parent + "." + child if parent else child


class Names:
    """All modules and parameters seen so far."""

    def __init__(self, intern):
        self._intern = intern
        self._places = {}
        self._roots = []
        self._first = None  # reference to the root that has no name
        self._roots_of_class = {}
        self.entries = {}  # id(module) -> Entry; read at every module call
        self.owners = {}  # id(parameter) -> Owner

    def clear(self):
        self._places.clear()
        self._roots.clear()
        self._first = None
        self._roots_of_class.clear()
        self.entries.clear()
        self.owners.clear()

    def place(self, name):
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = Place(name, self._intern(name))
        return place

    def name_of(self, number):
        """The module path of a scope id."""
        return next((name for name, place in self._places.items() if place.id == number), "")

    def add_root(self, module):
        """Names the tree of a module that was called at top level.

        A tree that contains an earlier root (an encoder tried alone before the whole model) gives
        that one its longer name; a module that two roots share keeps its first.
        """
        tree = {id(child): child for _, child, _ in walk(module)}
        for name, child, wrapper in list(walk(module, self._root_name(module, tree))):
            entry = self.entries.get(id(child))
            if entry is None or entry.root in tree:
                self._add(child, name, wrapper, id(module))
        self._roots.append(weakref.ref(module))
        return self.entries[id(module)]

    def _root_name(self, module, tree):
        """What a new root is called. `tree`: its modules by their ids.

        What has no parameters (a criterion, a transform made anew in each step) is not numbered. Numbers
        end, so that a program that copies its model in each step has few names. Whether an earlier root
        still lives does not matter: two runs collect their garbage at other times."""
        while (name := _inner_name(module)) is not None:
            module = module._modules[name]
        kind = type(module).__name__
        learns = any(one is not None for child in tree.values() for one in child._parameters.values())
        number = self._roots_of_class.get(kind, 0)
        if learns and number < _MAX_ROOTS:
            number = self._roots_of_class[kind] = number + 1
        if self._first is None or id(self._first()) in tree:
            if learns:
                self._first = weakref.ref(module)
            return ""
        known = self.entries.get(id(module))
        if known is not None:
            return known.place.name  # it was called without its wrapper, or in another
        return kind if not learns or number == 1 else "%s#%d" % (kind, number)

    def add_called(self, module, caller):
        """Names a module that is not in any tree yet but was called inside `caller`: it was
        attached since, or is kept where named_modules() does not look (then by its class)."""
        parent = caller.reference()
        name = caller.place.name
        if parent is not None and caller.searches < _MAX_SEARCHES:
            for child_name, child, wrapper in walk(parent, name):
                if child is module:
                    return self._add(module, child_name, wrapper, caller.root)
            caller.searches += 1
        for child_name, child, wrapper in walk(module, join(name, type(module).__name__)):
            if id(child) not in self.entries:
                self._add(child, child_name, wrapper, caller.root)
        return self.entries[id(module)]

    def _add(self, module, name, wrapper, root):
        key = id(module)
        place = self.place(name)
        former = self.entries.get(key)
        outer = self.entries.get(id(wrapper))
        entry = Entry(_KeyedReference(module, self._module_died, key), place,
                      outer and outer.wrapper or outer, root, padding.index_of(module))
        self.entries[key] = entry
        for parameter_name, parameter in module._parameters.items():
            if parameter is not None:
                self._own(parameter, place, parameter_name, former and former.place)
        return entry

    def _own(self, parameter, place, name, former=None):
        """`former`: what the owning module was called before, if it got a new name."""
        key = id(parameter)
        owner = self.owners.get(key)
        if (owner is not None and not owner.by_position and owner.place is not place
                and owner.place is not former):
            return  # tied weights: the first name wins
        recorded = owner.recorded if owner is not None else False
        owner = self.owners[key] = Owner(
            _KeyedReference(parameter, self._parameter_died, key), place, name,
            self._intern("param:" + name), self._intern("grad:" + name))
        owner.recorded = recorded

    def _module_died(self, reference):
        entry = self.entries.get(reference.key)
        if entry is not None and entry.reference is reference:
            del self.entries[reference.key]

    def _parameter_died(self, reference):
        owner = self.owners.get(reference.key)
        if owner is not None and owner.reference is reference:
            del self.owners[reference.key]

    def owner(self, parameter, group, index):
        """Owner of an optimizer's parameter; one that no module has is named by its position."""
        owner = self.owners.get(id(parameter))
        if owner is None:
            self._refresh()
            owner = self.owners.get(id(parameter))
        if owner is None:
            self._own(parameter, self.place(""), "group%d.%d" % (group, index))
            owner = self.owners[id(parameter)]
            owner.by_position = True
        return owner

    def roots(self):
        """Modules that were called at top level."""
        self._roots = [reference for reference in self._roots if reference() is not None]
        return [reference() for reference in self._roots]

    def _refresh(self):
        """Parameters may be replaced after the first forward (load_state_dict(assign=True))."""
        for root in self.roots():
            for entry, module in self.modules(root):
                for name, parameter in module._parameters.items():
                    if parameter is not None:
                        self._own(parameter, entry.place, name)

    def modules(self, root):
        """(entry, module) of the tree, in order."""
        for _, module, _ in walk(root):
            entry = self.entries.get(id(module))
            if entry is not None:
                yield entry, module

    def parameters(self, root):
        """(parameter, owner) of the tree, in order."""
        for _, module, _ in walk(root):
            for parameter in module._parameters.values():
                owner = self.owners.get(id(parameter)) if parameter is not None else None
                if owner is not None:
                    yield parameter, owner

    def unrecorded_parameters(self, root):
        """(parameter, owner) of the tree that were not given out before, in order.

        Parameters of lazy modules have neither shape nor memory before their first forward."""
        for parameter, owner in self.parameters(root):
            if not owner.recorded and not is_lazy(parameter):
                owner.recorded = True
                yield parameter, owner

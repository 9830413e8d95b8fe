"""Finds what the code of a backward reads from objects that outlive the call: closed-over variables, globals, objects on ctx, and
their attributes. Only what each forward replaces as a whole before it reads it counts (by an assignment, by `copy_`, by
`buffer[...] =`, as `out=`): each call has its own contents there, and none is a running average. What the backward writes itself is
left out, and so is a tensor of which it takes the shape or the type alone.
"""
import builtins
import collections
import functools
import types

from ..base import contents
from .statements import CELL, CHANGE, CTX, GLOBAL, READ, REPLACE, Flow, chains_of, jump_of, paths_of, statements_of, stored_by

_REPLACING = frozenset(("bernoulli_", "copy_", "exponential_", "fill_", "normal_", "random_", "uniform_", "zero_"))
_FACTS = frozenset((
    "device", "dim", "dtype", "element_size", "get_device", "is_contiguous", "is_cpu", "is_cuda", "is_floating_point", "layout", "ndim",
    "nelement", "new_empty", "new_full", "new_ones", "new_zeros", "numel", "requires_grad", "shape", "size", "stride"))

# Types of objects that contain no tensor, and of objects on which no call sets one as an attribute.
STATELESS = frozenset((types.ModuleType, types.BuiltinFunctionType, type(None), int, float, bool, str))
_STATELESS_MODULES = frozenset(("builtins", "math", "numpy", "torch"))
_WITHOUT_ATTRIBUTES = STATELESS | {types.FunctionType, types.MethodType, functools.partial, tuple, list, dict}


class Outside:
    """`paths`: (where, name of an object, name of its attribute or None) of what a backward reads and each forward replaces. What it
    reads for a log alone is left out. `has_roots`: whether some of them begin elsewhere than on ctx. `only_read`: names on ctx that it
    does not write. `logged`: those that it reads for a log alone. `renewed`: positions of the arguments of the forward that it
    fills before it reads them."""

    def __init__(self, forwards, backward):
        begin = {}  # a path -> its first use in a forward, in order
        for forward in forwards:
            for path, use, is_sure in _uses(forward.__code__):
                if is_sure or use != REPLACE:
                    begin.setdefault(path, use)
        idle, gives_ctx = Flow(backward.__code__).idle()
        uses = collections.defaultdict(set)
        for path, use, _ in _uses(backward.__code__, idle):
            uses[path].add(use)
        written = {path[2] for path, kinds in uses.items() if path[2] and kinds != {READ}}
        self.paths = sorted((path for path, kinds in uses.items() if kinds == {READ} and path[0] is not None
                             and path[2] not in written
                             and next((use for one, use in begin.items() if _may_be_one(one, path)), None) == REPLACE),
                            key=lambda path: (path[0], path[1], path[2] or ""))
        self.only_read = {path[1] for path, kinds in uses.items() if path[0] == CTX and path[2] is None and kinds == {READ}}
        self.logged = set() if gives_ctx else {
            path[1] for path, _, _ in _uses(backward.__code__) if path[0] == CTX} - {path[1] for path in uses if path[0] == CTX}
        arguments = forwards[0].__code__.co_varnames[1:forwards[0].__code__.co_argcount] if len(forwards) == 1 else ()
        new = renewed(forwards[0]) if arguments else ()
        self.renewed = {index for index, name in enumerate(arguments) if (name,) in new}
        self.has_roots = any(where != CTX for where, _, _ in self.paths)

    def found(self, function, objects=()):
        """Yields (name, value) of the paths. `objects`: (name, object) of those on ctx that are no tensors."""
        places = {CTX: dict(objects), CELL: dict(closed_over(function)), GLOBAL: function.__globals__}
        for where, root, name in self.paths:
            thing = places[where].get(root)
            if name is None:
                yield root, thing
                continue
            kind = type(thing)
            if issubclass(kind, type):
                yield "%s.%s" % (root, name), contents.found_in(thing, name)
            elif not contents.is_one_of(kind, _WITHOUT_ATTRIBUTES) and contents.module_of(kind) != "torch":
                yield "%s.%s" % (root, name), contents.attribute(thing, name)


def renewed(function):
    """@return the names that lead to the tensors that each call of a forward fills, before it reads them, with what no state has a
    part in: its arguments, functions of PyTorch. Such a tensor is an argument, or an attribute of ctx."""
    flow, first, until = Flow(function.__code__), {}, 0
    for index, group in enumerate(flow.groups):
        for statement in (flow.statements[number] for number in group):
            loaded = collections.Counter(path[:2 if path[0] == flow.own else 1] for path in paths_of(statement))
            filled = {names[:-1] if end != REPLACE else names for names, end in flow.ends_of(statement)
                      if end == REPLACE or names[-1] in _REPLACING}
            for path, count in loaded.items():
                is_sure = statement[-1].offset >= until and count == 1
                first.setdefault(path, index if is_sure and path in filled else None)
            for name in stored_by(statement):
                first.setdefault((name,), None)
            if loaded.keys() != {(flow.own, "training")}:  # training takes that branch in each call
                until = max(until, jump_of(statement))
    return {path for path, index in first.items() if index is not None and all(
        one[:len(path)] == path or _is_no_state(function, one) for one in flow.taken(flow.behind([index])))}


def _is_no_state(function, path):
    """@return whether the object to which names lead in a forward keeps nothing from call to call."""
    code, name = function.__code__, path[0]
    if code.co_argcount and name == code.co_varnames[0]:
        return False
    if name in code.co_varnames or name in code.co_cellvars:
        return True
    thing = {**vars(builtins), **function.__globals__, **dict(closed_over(function))}.get(name)
    kind = type(thing)
    if kind in (types.ModuleType, types.FunctionType):
        home = thing.__name__ if kind is types.ModuleType else thing.__module__
        return str(home).partition(".")[0] in _STATELESS_MODULES
    return contents.is_one_of(kind, STATELESS) or issubclass(kind, type) and contents.module_of(thing) in _STATELESS_MODULES


def _may_be_one(one, other):
    """@return whether a path of a forward and one of a backward may lead to one tensor: variables that outlive both have their names;
    what a function has in a variable of its own or on ctx may be any object."""
    if (one[2] is None, one[2] or one[1]) != (other[2] is None, other[2] or other[1]):
        return False
    return one[1] == other[1] or one[0] not in (CELL, GLOBAL) or other[0] not in (CELL, GLOBAL)


def function_of(kind, name):
    """@return a function of a class as it was written, under its decorators; None if the class has none."""
    found = contents.found_in(kind, name)
    if issubclass(type(found), (staticmethod, classmethod)):
        found = found.__func__
    while type(found) is types.FunctionType and type(found.__dict__.get("__wrapped__")) is types.FunctionType:
        found = found.__dict__["__wrapped__"]
    return found if type(found) is types.FunctionType else None


def closed_over(function):
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # it is empty
            pass
    return found


def _uses(code, without=()):
    """Yields ((where, name, attribute or None), READ, CHANGE or REPLACE, whether each call does that) of a function, in order. A statement
    that replaces something and also takes it (`mean.copy_(0.9 * mean)`) changes it. `without`: numbers of statements whose reads are left
    out."""
    own = code.co_varnames[0] if code.co_argcount else None
    until = 0  # the furthest instruction to which a condition may jump
    for number, statement in enumerate(statements_of(code)):
        chains = list(chains_of(statement, own, code.co_consts))
        found = [one for chain, end in chains for one in _of_chain(chain, end)]
        counts = collections.Counter(path for path, _ in found)
        whole = {tuple(chain) for chain, end in chains if len(chain) == 2 and end == READ}  # as in getattr(Kept, "mean")
        for path, use in found:
            is_taken = counts[path] > 1 or path[2] is not None and path[:2] in whole
            if use == READ and number in without:
                continue
            yield path, CHANGE if use != READ and is_taken else use, statement[-1].offset >= until
        until = max(until, jump_of(statement))


def _of_chain(chain, end):
    """Yields the uses of a chain such as ("global", "Kept", "mask", "copy_"), for the object itself and for its attribute: which
    of them is a tensor is not known here. `end`: what is done with its last part."""
    where, *names = chain
    for depth in 1, 2:
        if len(names) < depth or where is None and depth == 1:
            continue
        behind = names[depth:]
        path = where, names[0], names[1] if depth == 2 else None
        if not behind:
            use = end
        elif len(behind) == 1 and behind[0] in _REPLACING:
            use = REPLACE
        elif len(behind) == 1 and end == REPLACE:  # an attribute of it is set
            use = READ if depth == 1 else CHANGE
        elif behind[0] in _FACTS:
            continue
        else:
            use = CHANGE if behind[0].endswith("_") and not behind[0].endswith("__") else READ
        if use is not None:
            yield path, use

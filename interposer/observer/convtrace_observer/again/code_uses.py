"""Finds what the code of a backward reads from objects that outlive the call: closed-over variables, globals, objects on ctx, and
their attributes. Only what each forward replaces as a whole before it reads it counts (by an assignment, by `copy_`, by
`buffer[...] =`, as `out=`): each call has its own contents there, and none is a running average. What the backward writes itself is
left out, and so is a tensor of which it takes the shape or the type alone.
"""
import collections
import dis
import functools
import types

from ..base import contents

_CTX, _CELL, _GLOBAL = "ctx", "cell", "global"
_REPLACING = frozenset(("bernoulli_", "copy_", "exponential_", "fill_", "normal_", "random_", "uniform_", "zero_"))
_FACTS = frozenset((
    "device", "dim", "dtype", "element_size", "get_device", "is_contiguous", "is_cpu", "is_cuda", "is_floating_point", "layout", "ndim",
    "nelement", "new_empty", "new_full", "new_ones", "new_zeros", "numel", "requires_grad", "shape", "size", "stride"))
_TAKING_FACTS = frozenset(("expand_as", "isinstance", "len", "reshape_as", "to", "type_as", "view_as"))  # of the first argument
_READ, _CHANGE, _REPLACE = "read", "change", "replace"
_MOST_INSTRUCTIONS = 4096

# Types of objects that contain no tensor, and of objects on which no call sets one as an attribute.
STATELESS = frozenset((types.ModuleType, types.BuiltinFunctionType, type(None), int, float, bool, str))
_WITHOUT_ATTRIBUTES = STATELESS | {types.FunctionType, types.MethodType, functools.partial, tuple, list, dict}


class Outside:
    """`paths`: (where, name of an object, name of its attribute or None) of what a backward reads and each forward replaces.
    `has_roots`: whether some of them begin elsewhere than on ctx. `only_read`: names on ctx that it does not write. `replaced`:
    positions of the arguments of the forward that it replaces before it reads them."""

    def __init__(self, forwards, backward):
        begin = {}  # a path -> its first use in a forward, in order
        for forward in forwards:
            for path, use, is_sure in _uses(forward):
                if is_sure or use != _REPLACE:
                    begin.setdefault(path, use)
        uses = collections.defaultdict(set)
        for path, use, _ in _uses(backward):
            uses[path].add(use)
        written = {path[2] for path, kinds in uses.items() if path[2] and kinds != {_READ}}
        self.paths = sorted((path for path, kinds in uses.items() if kinds == {_READ} and path[0] is not None
                             and path[2] not in written
                             and next((use for one, use in begin.items() if _may_be_one(one, path)), None) == _REPLACE),
                            key=lambda path: (path[0], path[1], path[2] or ""))
        self.only_read = {name for (where, name, part), kinds in uses.items() if where == _CTX and part is None and kinds == {_READ}}
        self.replaced = _replaced_arguments(forwards[0]) if len(forwards) == 1 else ()
        self.has_roots = any(where != _CTX for where, _, _ in self.paths)

    def found(self, function, objects=()):
        """Yields (name, value) of the paths. `objects`: (name, object) of those on ctx that are no tensors."""
        return _values(self.paths, function, objects)


def _values(paths, function, objects):
    places = {_CTX: dict(objects), _CELL: dict(closed_over(function)), _GLOBAL: function.__globals__}
    for where, root, name in paths:
        thing = places[where].get(root)
        if name is None:
            yield root, thing
            continue
        kind = type(thing)
        if issubclass(kind, type):
            yield "%s.%s" % (root, name), contents.found_in(thing, name)
        elif not contents.is_one_of(kind, _WITHOUT_ATTRIBUTES) and contents.module_of(kind) != "torch":
            yield "%s.%s" % (root, name), contents.attribute(thing, name)


def _may_be_one(one, other):
    """@return whether a path of a forward and one of a backward may lead to one tensor: variables that outlive both have their names;
    what a function has in a variable of its own or on ctx may be any object."""
    if (one[2] is None, one[2] or one[1]) != (other[2] is None, other[2] or other[1]):
        return False
    return one[1] == other[1] or one[0] not in (_CELL, _GLOBAL) or other[0] not in (_CELL, _GLOBAL)


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


def _uses(code):
    """Yields ((where, name, attribute or None), _READ, _CHANGE or _REPLACE, whether each call does that) of a function, in order. A
    statement that replaces something and also takes it (`mean.copy_(0.9 * mean)`) changes it."""
    own = code.co_varnames[0] if code.co_argcount else None
    until = 0  # the furthest instruction to which a condition may jump
    for statement in _statements(code):
        chains = list(_chains(statement, own, code.co_consts))
        found = [one for chain, end in chains for one in _of_chain(chain, end)]
        counts = collections.Counter(path for path, _ in found)
        whole = {tuple(chain) for chain, end in chains if len(chain) == 2 and end == _READ}  # as in getattr(Kept, "mean")
        for path, use in found:
            is_taken = counts[path] > 1 or path[2] is not None and path[:2] in whole
            yield path, _CHANGE if use != _READ and is_taken else use, statement[-1].offset >= until
        until = max(until, _jump_of(statement))


def _replaced_arguments(code):
    """@return the positions, ctx not counted, of the arguments whose contents each call of a function replaces before it reads them."""
    names, first, until = code.co_varnames[1:code.co_argcount], {}, 0
    for statement in _statements(code):
        loaded = [name for one in statement if one.opname.startswith(("LOAD_FAST", "STORE_FAST", "DELETE_FAST"))
                  for name in (one.argval if type(one.argval) is tuple else (one.argval,))]
        stored = any(one.opname.startswith("STORE_FAST") and one.argval in names for one in statement)
        replaced = {chain[1] for chain, end in _chains(statement, None, code.co_consts)
                    if chain[0] is None and (len(chain) == 3 and chain[2] in _REPLACING or len(chain) == 2 and end == _REPLACE)}
        for name in loaded:
            is_sure = statement[-1].offset >= until and not stored and loaded.count(name) == 1
            first.setdefault(name, is_sure and name in replaced)
        until = max(until, _jump_of(statement))
    return {index for index, name in enumerate(names) if first.get(name)}


def _jump_of(statement):
    """@return the instruction to which a statement may jump; 0 if it does not."""
    jump = statement[-1] if statement else None
    jumps = jump is not None and (jump.opcode in dis.hasjrel or jump.opcode in dis.hasjabs) and type(jump.argval) is int
    return jump.argval if jumps else 0


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
            use = _REPLACE
        elif len(behind) == 1 and end == _REPLACE:  # an attribute of it is set
            use = _READ if depth == 1 else _CHANGE
        elif behind[0] in _FACTS:
            continue
        else:
            use = _CHANGE if behind[0].endswith("_") and not behind[0].endswith("__") else _READ
        if use is not None:
            yield path, use


def _statements(code):
    """Yields the instructions of each statement or condition."""
    statement = []
    for index, one in enumerate(dis.get_instructions(code)):
        if index == _MOST_INSTRUCTIONS:
            return
        if one.opname in ("CACHE", "EXTENDED_ARG", "NOP", "COPY_FREE_VARS", "RESUME"):
            continue
        statement.append(one)
        if one.opname.startswith(("STORE_", "DELETE_", "POP_TOP", "POP_JUMP", "RETURN_", "FOR_ITER")):
            yield statement
            statement = []
    yield statement


def _chains(statement, own, constants):
    """Yields ((where, name, attributes...), what is done with the last of them) of a statement's instructions. `own`: the name of
    the first argument, which is ctx."""
    for index, one in enumerate(statement):
        start = _start_of(one)
        if start is None:
            continue
        chain, at = list(start), index + 1
        while at < len(statement) and statement[at].opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain.append(statement[at].argval)
            at += 1
        if chain[0] is None and chain[1] == own:
            chain[0] = _CTX
            del chain[1]
            if len(chain) == 1:
                continue
        yield (chain, None) if _gives_facts(statement, index, at) else _with_end(chain, statement[at:], constants)
    last = statement[-1] if statement else None
    if last is not None and last.opname in ("STORE_GLOBAL", "STORE_DEREF"):
        is_alias = all(one.opname.startswith("LOAD_") for one in statement[:-1])
        yield (_GLOBAL if last.opname == "STORE_GLOBAL" else _CELL, last.argval), _READ if is_alias else _REPLACE


def _gives_facts(statement, begin, end):
    """@return whether the instructions from `begin` to `end` load the argument of a function that takes its shape or type alone."""
    before = next((one for one in statement[:begin][::-1] if one.opname != "PUSH_NULL"), None)
    name = before.argval if before is not None and before.opname.startswith("LOAD_") else None
    takes = type(name) is str and (name in _TAKING_FACTS or name.endswith("_like"))
    return takes and end < len(statement) and statement[end].opname.startswith(("CALL", "KW_NAMES", "LOAD_", "PRECALL"))


def _start_of(one):
    """@return (where, name) of an object that an instruction loads, with None for a variable; None for another instruction."""
    verb, _, kind = one.opname.partition("_")
    if verb != "LOAD":
        return None
    if kind.startswith("FAST"):
        return None, one.argval[-1] if type(one.argval) is tuple else one.argval  # some load two
    return {"GLOBAL": (_GLOBAL, one.argval), "NAME": (_GLOBAL, one.argval), "DEREF": (_CELL, one.argval),
            "CLASSDEREF": (_CELL, one.argval)}.get(kind)


def _with_end(chain, behind, constants):
    """@return a chain and its use by the instructions behind it, with the attribute that is set appended to it."""
    if not behind:
        return chain, _READ
    first = behind[0]
    if first.opname in ("STORE_ATTR", "DELETE_ATTR"):
        return [*chain, first.argval], _REPLACE if first.opname == "STORE_ATTR" else _CHANGE
    is_none = len(behind) > 1 and behind[1].opname in ("IS_OP", "COMPARE_OP") and first.argval is None
    if first.opname.startswith("POP_JUMP") and first.opname.endswith("NONE") or is_none:
        return chain, None
    names = constants[first.arg] if first.opname in ("KW_NAMES", "LOAD_CONST") else None
    if type(names) is tuple and names and names[-1] == "out":
        return chain, _REPLACE
    last = behind[-1].opname
    depth = {"STORE_SUBSCR": 1, "STORE_SLICE": 2}.get(last)
    if depth is not None:
        between = sum(dis.stack_effect(one.opcode, one.arg if one.opcode >= dis.HAVE_ARGUMENT else None) for one in behind[:-1])
        if between == depth:
            is_whole = all(one.opname == "BUILD_SLICE" or one.opname == "LOAD_CONST" and one.argval in (None, ..., slice(None))
                           for one in behind[:-1])  # not buffer[i] = value, nor buffer[...] += value
            return chain, _REPLACE if is_whole else _CHANGE
    return chain, _READ

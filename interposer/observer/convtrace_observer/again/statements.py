"""Reads a function's code: its statements, the objects that they load, store and change, and which statements take part in the result.

A statement takes part if it gives the result or is a condition, stores a variable or an attribute that such a statement takes, or
changes an object that one takes (a method whose name ends with `_`, `out=`, any other call whose result nobody takes). What only goes
to a log takes no part: a list that nobody else reads, `print`.
"""
import dis
import itertools

CTX, CELL, GLOBAL = "ctx", "cell", "global"
READ, CHANGE, REPLACE = "read", "change", "replace"
_TAKING_FACTS = frozenset(("expand_as", "isinstance", "len", "reshape_as", "to", "type_as", "view_as"))  # of the first argument
_MOST_INSTRUCTIONS = 4096
# Methods of lists, loggers and ctx, which leave their arguments alone.
_NOTING = frozenset(("append", "debug", "extend", "info", "mark_dirty", "mark_non_differentiable", "save_for_backward", "warning"))


def jump_of(statement):
    """@return the instruction to which a statement may jump; 0 if it does not."""
    jump = statement[-1]
    jumps = (jump.opcode in dis.hasjrel or jump.opcode in dis.hasjabs) and type(jump.argval) is int
    return jump.argval if jumps else 0


def statements_of(code):
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
    if statement:
        yield statement


def chains_of(statement, own, constants):
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
            chain[0] = CTX
            del chain[1]
            if len(chain) == 1:
                continue
        yield (chain, None) if _gives_facts(statement, index, at) else _with_end(chain, statement[at:], constants)
    last = statement[-1]
    if last.opname in ("STORE_GLOBAL", "STORE_DEREF"):
        is_alias = all(one.opname.startswith("LOAD_") for one in statement[:-1])
        yield (GLOBAL if last.opname == "STORE_GLOBAL" else CELL, last.argval), READ if is_alias else REPLACE


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
    return {"GLOBAL": (GLOBAL, one.argval), "NAME": (GLOBAL, one.argval), "DEREF": (CELL, one.argval),
            "CLASSDEREF": (CELL, one.argval)}.get(kind)


def _with_end(chain, behind, constants):
    """@return a chain and its use by the instructions behind it, with the attribute that is set appended to it."""
    if not behind:
        return chain, READ
    first = behind[0]
    if first.opname in ("STORE_ATTR", "DELETE_ATTR"):
        return [*chain, first.argval], REPLACE if first.opname == "STORE_ATTR" else CHANGE
    is_none = len(behind) > 1 and behind[1].opname in ("IS_OP", "COMPARE_OP") and first.argval is None
    if first.opname.startswith("POP_JUMP") and first.opname.endswith("NONE") or is_none:
        return chain, None
    names = constants[first.arg] if first.opname in ("KW_NAMES", "LOAD_CONST") else None
    if type(names) is tuple and names and names[-1] == "out":
        return chain, REPLACE
    last = behind[-1].opname
    depth = {"STORE_SUBSCR": 1, "STORE_SLICE": 2}.get(last)
    if depth is not None:
        heights = list(itertools.accumulate(_effect_of(one) for one in behind[:-1]))
        if heights[-1:] == [depth] and min(heights) >= 0:  # else it is a part of the value
            is_whole = all(one.opname == "BUILD_SLICE" or one.opname == "LOAD_CONST" and one.argval in (None, ..., slice(None))
                           for one in behind[:-1])  # not buffer[i] = value, nor buffer[...] += value
            return chain, REPLACE if is_whole else CHANGE
    return chain, READ


class Flow:
    """What the statements of a function take and change. Objects are the names that lead to them: ("ctx", "scale")."""

    def __init__(self, code):
        self.own, self._constants = code.co_varnames[0] if code.co_argcount else None, code.co_consts
        self.statements = list(statements_of(code))
        self.groups, depth, numbers = [], 0, []  # statements that hand a value to each other on the stack are one
        for number, statement in enumerate(self.statements):
            for one in statement:
                depth = max(0, depth + _effect_of(one))
            numbers.append(number)
            if not depth or number + 1 == len(self.statements):
                self.groups.append(numbers)
                numbers = []
        self._taken = [{path for number in group for path in paths_of(self.statements[number])} for group in self.groups]
        self._changed = [self._changes(group, taken) for group, taken in zip(self.groups, self._taken)]

    def idle(self):
        """@return the numbers of the statements that take no part in the result, and whether the others pass on the first
        argument as a whole"""
        live = self.behind(index for index, group in enumerate(self.groups)
                           if any(_decides(one) for number in group for one in self.statements[number]))
        idle = {number for index, group in enumerate(self.groups) if index not in live for number in group}
        return idle, any((self.own,) in self._taken[index] for index in live)

    def behind(self, groups):
        """@return the given groups and those that give them what they take, also indirectly"""
        found, left = set(), set(groups)
        while left:
            found |= left
            taken = {path for index in left for path in self._taken[index]}
            left = {index for index, changed in enumerate(self._changed)
                    if index not in found and any(_touch(one, other) for one in changed for other in taken)}
        return found

    def taken(self, groups):
        return {path for index in groups for path in self._taken[index]}

    def ends_of(self, statement):
        """Yields (names that lead to an object, what is done with it)."""
        for (where, *names), end in chains_of(statement, self.own, self._constants):
            yield (self.own, *names) if where == CTX else tuple(names), end

    def _changes(self, group, taken):
        changed = set()
        for statement in (self.statements[number] for number in group):
            for names, end in self.ends_of(statement):
                if end in (CHANGE, REPLACE):
                    changed.add(names)
                elif names[-1].endswith("_") and not names[-1].endswith("__"):
                    changed.add(names[:-1])
            changed.update((name,) for name in stored_by(statement))
        if self.statements[group[-1]][-1].opname == "POP_TOP":  # an expression whose value nobody takes
            called = next(iter(paths_of(self.statements[group[0]])), ("",))
            if called[-1] in _NOTING:
                changed.add(called[:-1])
            elif called != ("print",):
                changed |= taken
        return changed


def paths_of(statement):
    """Yields the names that lead to each object that a statement loads, in order."""
    for index, one in enumerate(statement):
        start = _start_of(one)
        if start is None and one.opname != "LOAD_CLOSURE":
            continue
        names = one.argval if type(one.argval) is tuple else (one.argval,)
        yield from ((name,) for name in names[:-1])
        path = [names[-1]]
        for other in statement[index + 1:]:
            if other.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            path.append(other.argval)
        yield tuple(path)


def stored_by(statement):
    """@return the names of the variables that a statement sets."""
    found = [one.argval for one in statement if one.opname.startswith(("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME"))]
    return [name for names in found for name in (names if type(names) is tuple else (names,))]


def _touch(one, other):
    """@return whether one of two objects is the other, or is a part of it."""
    depth = min(len(one), len(other))
    return one[:depth] == other[:depth]


def _decides(one):
    """@return whether an instruction gives the result or is a condition."""
    return one.opname.startswith(("RETURN_VALUE", "RETURN_CONST", "RAISE", "YIELD", "FOR_ITER")) or "JUMP" in one.opname and "_IF_" in one.opname


def _effect_of(one):
    """@return by how much an instruction makes the stack higher for the next statement: a loop and a context stay there, and of two
    alternatives one does."""
    if one.opname in ("FOR_ITER", "BEFORE_WITH", "SETUP_WITH", "SETUP_FINALLY"):
        return 0
    if one.opname.startswith("JUMP_FORWARD"):
        return -1
    return dis.stack_effect(one.opcode, one.arg if one.opcode >= dis.HAVE_ARGUMENT else None, jump=False)

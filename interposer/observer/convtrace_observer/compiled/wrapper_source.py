"""Reads from the Python file that Inductor generates for a region which kernels it calls, their operands, and the nodes that
each was made of.

Everything comes from the file and from the map of its lines to the program's source, which Inductor keeps in its cache
as well: a region has the same calls from a cold and from a warm cache. Nothing here needs torch.
"""
import ast
import bisect
import re
import warnings

from . import kernel_source

KERNEL, EXTERN, CUSTOM = "kernel", "extern", "custom"

_HEADER = re.compile(r"# AOT ID: \['(\d+)_(\w+)'\]")
_COMMENT = re.compile(r"# (?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
_NUMBER = re.compile(r"_\d+$")
_CPP_PARAMETERS = re.compile(r'extern "C"[^(]*\((.*?)\)', re.S)
_MUTATED = re.compile(r"'mutated_arg_names': \[(.*?)\]")
_ASYNC = "async_compile"


class Call:
    """A call in the generated code; its outputs are not known if it is CUSTOM. `kernel` is its name there, `op` a name without
    the kernel's number, which changes with the rest of the region. `inputs` and `outputs`: (operand's name, expression as ast).
    `nodes`: names of the nodes of the region's graph that it was made of, if Inductor tells them. `trace`: the stack trace of
    the last of them. `made`: output of a kernel -> names of the inputs that it depends on. `dropped`: (name, owner) of a view
    of the owner's memory that was meant for the result of the call; the view is dropped after the call without having been
    written."""

    __slots__ = ("kind", "kernel", "op", "inputs", "outputs", "nodes", "trace", "statement", "made", "dropped")

    def __init__(self, kind, kernel, op, inputs, outputs, statement):
        self.kind, self.kernel, self.op = kind, kernel, op
        self.inputs, self.outputs, self.statement = inputs, outputs, statement
        self.nodes, self.trace, self.made, self.dropped = (), "", {}, None


class Function:
    """A function of the file that runs kernels. `aliases`: (position in `calls`, target, source) of the names that are
    given to the memory of others (None: to what a call that is not observed has written), in the order of execution.
    `arguments` and `returned`: names, "" for what has none."""

    __slots__ = ("node", "calls", "aliases", "arguments", "returned")

    def __init__(self, node):
        self.node = node
        self.calls, self.aliases, self.arguments, self.returned = [], [], [], []


def region_kind(text):
    """@return the number of the graph in its compilation, and "forward", "backward" or "inference"; None if the text is not
    that of a region."""
    found = _HEADER.match(text)
    return found.groups() if found else None


def read(text, line_map, is_custom=lambda namespace: False):
    """@param line_map  (first line, stack trace) pairs in order of lines, as Inductor gives them to its loader
    @param is_custom  whether a namespace of torch.ops has custom ops, whose calls are CUSTOM
    @return the Functions of a region's file that call kernels, and the one that runs the region, `call`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in the texts of kernels
        tree = ast.parse(text)
    reader = _Reader(text, tree, line_map, is_custom)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    functions += [node for owner in tree.body if isinstance(owner, ast.ClassDef)
                  for node in owner.body if isinstance(node, ast.FunctionDef)]
    found = [reader.function(node) for node in functions
             if node.name not in ("get_args", "benchmark_compiled_module")]
    return [function for function in found if function.calls or function.node.name == "call"]


class _Reader:
    def __init__(self, text, tree, line_map, is_custom):
        self._lines, self._is_custom = text.split("\n"), is_custom
        self._starts = [line for line, _ in line_map]
        self._traces = [trace or "" for _, trace in line_map]
        self._kernels = dict(_kernels(tree))

    def function(self, node):
        function = Function(node)
        self._unused = {}  # unused views -> the variable in whose memory they lie
        self._block(function, node.body)
        return function

    def _block(self, function, statements):
        for statement in statements:
            self._views(function, statement)
            call = self._call(statement)
            if call is not None:
                self._place(call, function)
                function.calls.append(call)
            if isinstance(statement, ast.Assign) and (call is None or call.kind == CUSTOM):
                self._assignment(function, statement)
            elif isinstance(statement, ast.Return):
                values = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
                function.returned = [variable(value) for value in values]
            for name in ("body", "orelse"):
                self._block(function, getattr(statement, name, ()))

    def _assignment(self, function, statement):
        target, value = statement.targets[0], statement.value
        if isinstance(value, ast.Name) and value.id == "args":
            function.arguments = [variable(one) for one in getattr(target, "elts", [target])]
        elif isinstance(target, ast.Name) and variable(value):
            function.aliases.append((len(function.calls), target.id, variable(value)))
        elif isinstance(target, ast.Name) and isinstance(value, ast.Call) and not _allocates(value):
            function.aliases.append((len(function.calls), target.id, None))

    def _views(self, function, statement):
        """Finds views that are dropped unused. Inductor makes a view of a larger tensor for each part that a kernel computes, and
        marks it (`# alias`). If its name is reused before the view was used, that part stays unwritten (pytorch#193061)."""
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        assigned = {one.id for one in targets if isinstance(one, ast.Name)}
        for node in ast.walk(statement):
            owner = self._unused.pop(node.id, None) if isinstance(node, ast.Name) else None
            made = [call for call in function.calls if call.kind != CUSTOM] if owner and node.id in assigned else ()
            if made:
                made[-1].dropped = (node.id, owner)
        if assigned and self._lines[statement.lineno - 1].endswith("# alias"):
            self._unused.update((name, variable(statement.value)) for name in assigned)

    def _call(self, statement):
        value = getattr(statement, "value", None)
        if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(value, ast.Call):
            return None
        parts = _dotted(value.func)
        kernel = self._kernels.get(parts[0]) if parts else None
        if kernel is not None:
            named = list(zip(kernel.parameters, value.args))
            inputs = [one for one in named if not _is_output_only(one[0])]
            outputs = [one for one in named if one[0] in kernel.written and variable(one[1])]
            call = Call(KERNEL, parts[0], "inductor::" + _NUMBER.sub("", parts[0]), inputs, outputs, statement)
            call.made = kernel.made
            return call
        if parts[:2] == ("torch", "ops") and len(parts) > 4 and self._is_custom(parts[2]):
            inputs = [(str(index), one) for index, one in enumerate(value.args)]
            return Call(CUSTOM, ".".join(parts), "::".join(parts[2:4]), inputs, [], statement)
        op = _aten_name(parts)
        if op is None:
            return None
        inputs = [(str(index), one) for index, one in enumerate(value.args) if not isinstance(one, ast.Constant)]
        written = [one.value for one in value.keywords if one.arg == "out"]
        if not written and isinstance(statement, ast.Assign):
            written = [one for one in statement.targets if isinstance(one, ast.Name)]
        elif not written and op.endswith("_"):
            written = value.args[:1]
        if not all(variable(one) for one in written):
            return None
        outputs = [(str(index), _loaded(one)) for index, one in enumerate(written)]
        return Call(EXTERN, ".".join(parts), op, inputs, outputs, statement) if outputs else None

    def _place(self, call, function):
        first = call.statement.lineno
        at = bisect.bisect_right(self._starts, first)
        told = self._traces[at - 1:at]
        if call.kind == KERNEL and self._kernels[call.kernel].is_cpp:
            before = bisect.bisect_right(self._starts, function.calls[-1].statement.lineno) if function.calls else 0
            told = self._traces[before:max(at - self._is_followed(call, function, at), 0)]
        call.trace = next(filter(None, reversed(told)), "")
        # The stream of a Triton kernel is fetched between the comment and the call.
        for line in self._lines[max(first - 3, 0):first - 1]:
            found = _COMMENT.search(line)
            if found:
                call.nodes = tuple(name for name in found[1].split(", ") if name)

    def _is_followed(self, call, function, at):
        """@return whether other code than `del` and `return` lies between a call and the next entry of the line map. If so, the
        preceding entry is that of a later operation: Inductor defers the calls of C++ kernels until it meets an operation, and
        writes them after the operation's entry."""
        end = min([function.node.end_lineno + 1, *self._starts[at:at + 1]])
        between = self._lines[call.statement.end_lineno:end - 1]
        return any(not line.strip().startswith(("del ", "return ")) for line in between if line.strip())


class _Kernel:
    __slots__ = ("parameters", "written", "made", "is_cpp")

    def __init__(self, parameters, written, text, is_cpp):
        self.parameters, self.written, self.is_cpp = parameters, written, is_cpp
        inputs = [name for name in parameters if "ptr" in name and not _is_output_only(name)]
        self.made = kernel_source.made_of(text, inputs, [name for name in parameters if name in written])


def _kernels(tree):
    """Yields (name, _Kernel) of the kernels that the file compiles."""
    for statement in tree.body:
        value = getattr(statement, "value", None)
        parts = _dotted(value.func) if isinstance(value, ast.Call) else ()
        if not isinstance(statement, ast.Assign) or parts[:1] != (_ASYNC,):
            continue
        texts = [one.value for one in value.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if parts[1] == "cpp_pybinding" and texts:
            kernel = _cpp_kernel(texts[-1])
        elif parts[1] == "triton" and len(texts) == 2:
            kernel = _triton_kernel(*texts)
        else:
            continue
        yield statement.targets[0].id, kernel


def _cpp_kernel(text):
    found = _CPP_PARAMETERS.search(text)
    parameters = [" ".join(one.split()) for one in found[1].split(",")] if found else []
    names = [one.split(" ")[-1] for one in parameters]
    written = {name for name, one in zip(names, parameters) if "*" in one and "const " not in one}
    return _Kernel(names, written, text[found.end():] if found else "", True)


def _triton_kernel(name, text):
    found = re.search(r"def %s\((.*?)\):" % re.escape(name), text, re.S)
    names = [one.split(":")[0].strip() for one in found[1].split(",")] if found else []
    mutated = _MUTATED.search(text)
    written = set(re.findall(r"'(\w+)'", mutated[1])) if mutated else set()
    return _Kernel(names, written | {one for one in names if _is_output_only(one)}, text[found.end():] if found else "", False)


def _allocates(call):
    """@return whether a call returns uninitialized memory."""
    return "".join(_dotted(call.func)[-1:]).lstrip("_").startswith(("empty", "alloc"))


def _is_output_only(name):
    return name.startswith("out_ptr")


def _aten_name(parts):
    """@return "aten::name" of a called operation of PyTorch's own, else None: other parts of the observer record custom ops
    and collectives."""
    if parts[:3] == ("torch", "ops", "aten"):
        parts = parts[2:]
    if len(parts) < 2 or parts[0] not in ("aten", "extern_kernels"):
        return None
    return "aten::" + ".".join(parts[1:2] if parts[2:] == ("default",) else parts[1:])


def _dotted(node):
    """@return the parts of a dotted name, ("torch", "ops", "aten", "mm") for torch.ops.aten.mm, else ()."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def variable(node):
    """@return the name of the variable in whose memory an expression (a variable, a view, an element) lies, or ""."""
    while True:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Call) and node.args and _dotted(node.func)[-1:] in (("reinterpret_tensor",), ("view",)):
            node = node.args[0]
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            return ""


def _loaded(node):
    """@return an expression to read an operand, also for a variable that a statement assigns."""
    return ast.Name(node.id, ast.Load()) if isinstance(node, ast.Name) else node

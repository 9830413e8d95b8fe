"""The names in Dynamo's graph of a region: the modules of each node, and the nodes that a call of the generated code was made
of.

Dynamo traces a region in every process, even if Inductor's code comes from a cache. No part of the graph itself is kept.
"""
import re

_LOCAL = re.compile(r"^L\['\w+'\]\.?|^G\['\w+'\]\.?")
_LINE = re.compile(r", line \d+")
_VISIT = re.compile(r"@(\d+)$")
_RESUMED = ", in torch_dynamo_resume_in_"  # the rest of a function after code that Dynamo does not trace
# Autograd's addition to the trace of a node that sums gradients.
_ADDED = "Gradient addition node"


class Node:
    """A node of the graph. `position`: its number. `does`: the function that it calls, such as "linear". `inputs`, `users`:
    names of nodes. `modules`: (id, path, visit) of the modules around it, outermost first; a module that the region calls
    twice has two visits. `ends`: how many of these, from the innermost, return its value. `arguments`: numbers of the
    graph's arguments that it takes. `shape`: that of its value, if it is a tensor of a fixed shape."""

    __slots__ = ("name", "position", "does", "inputs", "users", "modules", "ends", "arguments", "shape", "trace")


class Graph:
    def __init__(self, graph):
        """@param graph  a torch.fx.Graph"""
        self.nodes, self.visits = {}, {}  # by name; by id of a module
        self._by_trace, self._by_position, self._arguments = {}, {}, []
        self.roots, self.is_resumed = {}, False  # id of each outermost module: where Dynamo found it, as "L['self'].model"
        numbers, computed = {}, []  # of placeholders; nodes with a value
        for position, fx in enumerate(graph.nodes):
            if fx.op == "placeholder":
                user = next(iter(fx.users), None)
                numbers[fx] = len(self._arguments)
                self._arguments.append(user.name if user is not None else "")
            elif fx.op != "output":
                node = self.nodes[fx.name] = self._by_position[position] = _node(fx, position)
                if node.modules:
                    self.roots.setdefault(node.modules[0][0], _VISIT.sub("", next(iter(fx.meta["nn_module_stack"].values()))[0]))
                self.is_resumed = self.is_resumed or _RESUMED in node.trace
                node.arguments = {numbers[one] for one in fx.all_input_nodes if one in numbers}
                for number, _, visit in node.modules:
                    self.visits[number] = max(self.visits.get(number, 1), visit + 1)
                for trace in node.trace, _LINE.sub("", node.trace):
                    self._by_trace.setdefault(trace, []).append(node)
                if _is_value(fx):
                    computed.append(node)
        self._find_ends(computed)

    def _find_ends(self, nodes):
        """Sets `ends` of each node. A module returns the last of its values that has a user outside of it; the region's caller
        is one, too."""
        returned = {}
        for node in nodes:
            for module in node.modules:
                if any(one not in self.nodes or module not in self.nodes[one].modules for one in node.users):
                    returned[module] = node
        for node in nodes:
            for module in reversed(node.modules):
                if returned.get(module) is not node:
                    break
                node.ends += 1

    def argument(self, number):
        """@return the position of the first node that uses one of the graph's arguments, or None."""
        name = self._arguments[number] if number < len(self._arguments) else ""
        return self.nodes[name].position if name in self.nodes else None

    def find(self, kernel, names, trace, near, bound, is_backward):
        """@param kernel  name of a fused kernel, which contains those of its operations; "" for any other call
        @param names  nodes that Inductor names as sources, in order
        @param trace  the stack trace of the last of the sources
        @param near  positions of the nodes that computed the call's operands
        @param bound  position of the first node, in the order of execution, that may take all the operands; or None
        @return the last Node that a call was made of, or None.
        """
        known = [self.nodes[name] for name in names if name in self.nodes]
        trace = _plain(trace)
        # Code from Inductor's cache has the line numbers of the time when it was compiled.
        same = self._by_trace.get(trace) or self._by_trace.get(_LINE.sub("", trace), ()) if trace else ()
        named = next((node for node in reversed(known) if node in same or not same), None)
        if named is not None and (kernel or bound is None or not same):
            return named
        if not same:
            return None if trace else self._computed(kernel, near, is_backward)
        if named is not None:  # weights that calls of a module share have the name of the first
            same = [node for node in same if node.does == named.does and _ids(node) == _ids(named)]
        else:
            same = [node for node in same if (node.does in kernel if kernel else node.arguments)] or same

        def distance(node):
            if bound is None:
                return 0, sum(abs(node.position - position) for position in near)
            ahead = bound - node.position if is_backward else node.position - bound
            return ahead < 0, abs(ahead)

        return min(same, key=distance)

    def _computed(self, kernel, near, is_backward):
        """Finds the node of a call without a trace, which Inductor omits for operations that only PyTorch's own modules call.
        @return the last of the nodes that computed the operands, and of their neighbours, whose operation is in the kernel's
        name; or None"""
        nodes = [self._by_position[position] for position in near]
        nodes += [self.nodes[name] for node in nodes for name in (node.inputs if is_backward else node.users) if name in self.nodes]
        nodes = [node for node in nodes if node.does in kernel]
        return (min if is_backward else max)(nodes, key=lambda node: node.position) if nodes else None


def _node(fx, position):
    node = Node()
    node.name, node.position, node.ends = fx.name, position, 0
    node.does = fx.target if isinstance(fx.target, str) else getattr(fx.target, "__name__", str(fx.target))
    node.inputs, node.users = [one.name for one in fx.all_input_nodes], [one.name for one in fx.users]
    node.trace = _plain(fx.meta.get("stack_trace") or "")
    node.modules = tuple(_module(key, value[0]) for key, value in (fx.meta.get("nn_module_stack") or {}).items())
    shape = getattr(fx.meta.get("example_value"), "shape", None)
    node.shape = tuple(shape) if shape is not None and all(type(extent) is int for extent in shape) else None
    return node


def _module(key, path):
    visit = _VISIT.search(str(key)) or _VISIT.search(path)
    key = _VISIT.sub("", str(key))
    return (int(key) if key.isdigit() else 0, _LOCAL.sub("", _VISIT.sub("", path)), int(visit[1]) if visit else 0)


def _ids(node):
    return [number for number, _, _ in node.modules]


def _is_value(fx):
    """@return whether a node has a value that is no number. One that switches a mode has none (`_set_grad_enabled`,
    `_enter_autocast`)."""
    value = fx.meta.get("example_value", ())
    return value is not None and not isinstance(value, (bool, int, float, str))


def _plain(trace):
    return trace.split(_ADDED)[0].strip()

"""Finds the node of the region's graph that each call of the generated code was made of.

Inductor names the nodes where it calls an operation or a Triton kernel. For a C++ kernel it tells only the program's line of
the last node, and a line of a module that occurs twelve times in a model belongs to twelve nodes. The chosen node is the
first of these that can run after the nodes that computed the call's operands in earlier calls. If no earlier call computed
an operand, it is the node nearest to the operands: the parameters, and in the backward code the tensors that the forward
code saved.
"""
import re

from . import wrapper_source

_ARGUMENT = re.compile(r"(?:primals_(\d+)|arg(\d+)_1)$")
_SYMBOL = re.compile(r"s\d+$")


class Sources:
    """The nodes of a function's calls. `of`: Call -> graph.Node. `read`: Call -> its inputs, without memory that was never
    written. `returned`: positions of the nodes whose values the function returns, None for an unknown one."""

    def __init__(self, function, graph, saved=None):
        """@param saved  `returned` of the forward code, if the function belongs to the backward pass; else None"""
        self._graph, self._is_backward = graph, saved is not None
        self.of, self.read = {}, {}
        self.numbers = {}  # variable -> number of the graph's argument that it is
        self._memory = {name: name for name in function.arguments}  # variable -> the first one in the same memory
        # The next three are keyed by these first variables.
        self._written = set(function.arguments)
        self._positions = self._known_arguments(function, saved)
        self._bounds = {}  # -> position of the first node, in the order of execution, that may take what a call wrote
        aliases = list(reversed(function.aliases))
        for index, call in enumerate(function.calls):
            while aliases and aliases[-1][0] <= index:
                self._alias(*aliases.pop()[1:])
            self._find(call)
        while aliases:
            self._alias(*aliases.pop()[1:])
        self.returned = [self._positions.get(self._memory.get(name)) for name in function.returned]

    def _known_arguments(self, function, saved):
        positions = {}
        inner = [name for name in function.arguments if not name.startswith("tangents") and not _SYMBOL.match(name)]
        symbols = sum(bool(_SYMBOL.match(name)) for name in function.arguments)
        kept = (saved or [])[:len(saved or []) - symbols]
        if len(kept) >= len(inner):
            positions.update(zip(inner, kept[len(kept) - len(inner):]))
        for name in function.arguments:
            found = _ARGUMENT.match(name)
            if found:
                number = self.numbers[name] = int(found[1]) - 1 if found[1] else int(found[2])
                positions[name] = self._graph.argument(number)
        return {name: position for name, position in positions.items() if position is not None}

    def _alias(self, target, source):
        if source is None:
            self._written.add(self._memory.setdefault(target, target))
            source = target
        self._memory[target] = self._memory.setdefault(source, source)
        self._renumber(target, source)

    def _renumber(self, name, source):
        """Notes that a variable is the same argument of the graph as `source`, or none if that is none."""
        number = self.numbers.get(source)
        self.numbers.pop(name, None)
        if number is not None:
            self.numbers[name] = number

    def _find(self, call):
        operands = {self._memory.get(wrapper_source.variable(expression)) for _, expression in call.inputs}
        near = [self._positions[one] for one in operands if one in self._positions]
        bounds = [self._bounds[one] for one in operands if one in self._bounds]
        bound = (min if self._is_backward else max)(bounds, default=None)
        kernel = call.kernel if call.kind == wrapper_source.KERNEL else ""
        node = self.of[call] = self._graph.find(kernel, call.nodes, call.trace, near, bound, self._is_backward)
        self.read[call] = [one for one in call.inputs if self._memory.get(wrapper_source.variable(one[1])) in self._written]
        variables = {operand: wrapper_source.variable(expression) for operand, expression in call.inputs}
        for operand, expression in call.outputs:
            name = wrapper_source.variable(expression)
            whole = self._memory.setdefault(name, name)
            self._written.add(whole)
            made = call.made.get(operand, ())
            # A weight in another layout or type is still the same argument: its node takes it unconverted.
            self._renumber(name, variables.get(made[0]) if len(made) == 1 else None)
            if node is not None:
                # A product with a weight completes its node, so that only later nodes can take it.
                done = call.kind == wrapper_source.EXTERN and bool(node.arguments)
                self._positions[whole] = node.position
                self._bounds[whole] = node.position + (-done if self._is_backward else done)

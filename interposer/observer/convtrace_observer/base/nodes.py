"""Reads nodes of autograd's graph. The attributes that a Function sets on `ctx` are attributes of its node and may have any
name, and a program's class may have properties: for such nodes the getters in C are called.
"""


class Nodes:
    def __init__(self, torch):
        base = torch._C._FunctionBase
        self._function = torch.autograd.function.BackwardCFunction
        self._name, self._number = base.name, base._sequence_nr
        self._next = base.next_functions.__get__
        self.saved = base.saved_tensors.__get__  # of a Function's node alone
        # These give the number of the backward pass that this thread runs, -1 for none, and its node, None for none. A release of torch
        # that cannot tell has neither function.
        self.graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self.running = getattr(torch._C, "_current_autograd_node", lambda: None)

    def is_of_function(self, node):
        return issubclass(type(node), self._function)

    def name(self, node):
        return self._name(node) if self.is_of_function(node) else node.name()

    def number(self, node):
        """@return the node's sequence number, which each thread counts in the order in which it makes nodes."""
        return self._number(node) if self.is_of_function(node) else node._sequence_nr()

    def next(self, node):
        """@return [(node or None, number of its input)] of the next nodes towards the leaves."""
        return self._next(node) if self.is_of_function(node) else node.next_functions

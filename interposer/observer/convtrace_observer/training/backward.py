"""Records the backward pass and the tensor that it starts from (the loss), and sets the phase while it runs."""
import functools

from ..base import contents, engine, is_power, nodes, replaced

_RUN = "_engine_run_backward"
_MOST_LOSSES = 8  # of a step, whose functions are recorded
_INNER = 6  # functions below one that only combines others, or gives one of them in another form
_COMBINES = frozenset(("Add", "Sub", "Mean", "Sum", "Stack"))
_FORMS = frozenset(("Mul", "Div", "Neg", "ToCopy", "View", "Squeeze", "Unsqueeze", "Clone", "Alias", "Select", "Slice", "Expand"))
_REDUCTIONS = ("none", "mean", "sum")


class Backward:
    """Surrounds the common inner function of torch.autograd.backward (which Tensor.backward calls) and torch.autograd.grad,
    so that both stay as they are. An older torch has no such function: there these two are wrapped."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._autograd = torch.autograd
        self._replaced = replaced.Replaced()
        self._nodes = nodes.Nodes(torch)
        self.forget()

    def install(self):
        surround = functools.partial(self._replaced.surround, self._observer)
        graph = getattr(self._autograd, "graph", None)
        if hasattr(graph, _RUN) and hasattr(self._autograd, _RUN):
            surround(self._autograd, _RUN, self._run_begins, self._ended)
            self._replaced.set(graph, _RUN, vars(self._autograd)[_RUN])  # torch restores that one after a replacement of its own
        else:
            for name in "backward", "grad":
                begins = functools.partial(self._begins, name == "backward", "tensors" if name == "backward" else "outputs")
                self._replaced.set(self._autograd, name, replaced.framed(
                    self._observer, getattr(self._autograd, name), begins, self._ended))

    def remove(self):
        self._replaced.put_back()

    def forget(self):
        self._counted = -1, 0  # the step, and its backward passes
        self._told = set()

    def _run_begins(self, args, kwargs):
        of_loss = bool(kwargs and kwargs.get("accumulate_grad"))
        return self._begins(of_loss, "t_outputs", args, kwargs)

    def _begins(self, of_loss, name, args, kwargs):
        """@param of_loss  false for gradients that the program asks for. @param name  of the first argument"""
        observer = self._observer
        if not observer.active or observer.is_compiling() or observer.is_tracing():
            return None
        thread = observer.threads.state
        if self._nodes.graph_task() != -1:  # a backward inside a backward (reentrant checkpoint) starts from no loss
            try:
                observer.modules.recomputed.look(thread)
            except Exception as error:
                observer.failed("backward", error)
            return None
        slot = thread.slot
        before = slot[0], slot[1]
        try:
            if not observer.begin(thread):
                return None
            if observer.steps.backward(of_loss):
                observer.open_step(thread)
            if observer.capture:
                structure = args[0] if args else (kwargs or {}).get(name)
                observer.modules.lent.look_again(thread)
                observer.modules.function_state.look_again(thread)
                if observer.reused_outputs.any():
                    with observer.read.unobserved():
                        observer.reused_outputs.tell(thread, structure)
                losses = structure if of_loss else ()
                if of_loss:
                    self._look_at_losses(thread, losses)
                observer.hot.backward(thread, observer.names.place(""), True, losses, observer.port.intern("loss"))
            slot[0] = 0
            slot[1] = engine.BACKWARD
        except Exception as error:
            observer.failed("backward", error)
            return None
        mode = observer.operations.mode_of_backward(thread)
        if mode is not None:
            mode.__enter__()
        return thread, before, mode

    def _look_at_losses(self, thread, losses):
        try:
            self._tell_functions(thread, losses)
            self._observer.optimizers.left.look(thread, losses)
            self._observer.modules.needed.look_at_losses(thread, losses)
        except Exception as error:
            self._observer.failed("losses", error)

    def _tell_functions(self, thread, losses):
        """Records the functions that computed the losses, and the program's line that passes them back: in steps 0, 1, 3, 7 and so
        on, once each."""
        observer, (step, count) = self._observer, self._counted
        count = count + 1 if step == observer.step else 1
        self._counted = observer.step, count
        if count > _MOST_LOSSES or not is_power(observer.step + 1):
            return
        with observer.read.unobserved():
            functions = [self._function_of(observer.read.bare(one).grad_fn) for one in observer.read.tensors(losses)]
        if len(functions) != 1 or not functions[0]:
            return
        suffix = "" if count == 1 else ":%d" % (count - 1)
        for fact in ("loss.backward" + suffix, functions[0]), ("backward.call" + suffix, observer.module_facts.line_of_program()):
            if fact[1] and fact not in self._told:
                self._told.add(fact)
                thread.batch.event_fact(observer.names.place("").id, *fact)

    def _function_of(self, node):
        """@return the function that computed a loss, by its node, and its reduction, where it has one; "" where torch has
        compiled it. Scaled, it is the same function: gradients show the factor."""
        while node is not None and self._name(node) in _FORMS and (inner := self._inner(node)):
            node = inner[0]
        text = self._named(node, _INNER)
        if not text or "Compiled" in text:
            return ""
        saved = contents.found_in(type(node), "_saved_reduction")
        reduction = saved.__get__(node) if saved is not None and not self._nodes.is_of_function(node) else None
        return "function=" + text + (", reduction=" + _REDUCTIONS[reduction] if reduction in (0, 1, 2) else "")

    def _named(self, node, depth):
        name = self._name(node) if node is not None else ""
        if not depth or name not in _COMBINES | _FORMS:
            return name
        inner = [self._named(one, depth - 1) for one in self._inner(node)]
        return " ".join(inner) if name in _FORMS else "%s(%s)" % (name, " ".join(inner))

    def _name(self, node):
        return self._nodes.name(node).partition("Backward")[0]

    def _inner(self, node):
        """@return the nodes from which a node takes values that have gradients."""
        return [one for one, _ in self._nodes.next(node) if one is not None]

    def _ended(self, state, result, raised):
        thread, before, mode = state
        observer = self._observer
        try:
            if mode is not None:
                observer.operations.leave(thread, mode)
        finally:
            try:
                thread.slot[0], thread.slot[1] = before
                observer.modules.recomputed.forget()
                observer.collectives.waited()  # by DDP; but a hook of its communication may have written since
                if observer.capture:
                    observer.hot.backward(thread, observer.names.place(""), False, (), 0)
            except Exception as error:
                observer.failed("backward", error)

    def mark(self, thread, place, enter, losses, slot):
        """Records the beginning or end of the pass, and before its beginning the tensors that it starts from."""
        observer = self._observer
        with observer.read.unobserved():
            for tensor in observer.read.tensors(losses):
                value = observer.read(tensor)
                if value is not None:
                    call = observer.occurrence(place, engine.LOSS_PHASE, slot)
                    thread.batch.tensor(engine.LOSS_PHASE, observer.full, place.id, call, slot, 0, value)
        call = observer.occurrence(place, engine.BACKWARD, enter)
        thread.batch.scope(engine.BACKWARD, enter, place.id, call)
        observer.submit(thread)

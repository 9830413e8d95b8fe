"""Records the backward pass and the tensor that it starts from (the loss), and sets the phase while it runs."""
import functools

from ..base import engine, replaced, spent


_RUN = "_engine_run_backward"


class Backward:
    """Surrounds the common inner function of torch.autograd.backward (which Tensor.backward calls) and torch.autograd.grad,
    so that both stay as they are. An older torch has no such function: there these two are wrapped."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._autograd = torch.autograd
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._replaced = replaced.Replaced()

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

    def _run_begins(self, args, kwargs):
        return self._begins(bool(kwargs and kwargs.get("accumulate_grad")), "t_outputs", args, kwargs)

    def _begins(self, of_loss, name, args, kwargs):
        """@param of_loss  false for gradients that the program asks for. @param name  of the first argument"""
        observer = self._observer
        # A backward inside a backward (reentrant checkpoint) starts from no loss.
        if not observer.active or observer.is_compiling() or observer.is_tracing() or self._graph_task() != -1:
            return None
        thread = observer.threads.state
        before = self._enter(thread, args[0] if args else (kwargs or {}).get(name), of_loss)
        if before is None:
            return None
        mode = observer.operations.mode_of_backward(thread)
        if mode is not None:
            mode.__enter__()
        return thread, before, mode

    def _ended(self, state, result, raised):
        thread, before, mode = state
        try:
            if mode is not None:
                self._observer.operations.leave(thread, mode)
        finally:
            self._leave(thread, before)

    @spent.sampled
    def _enter(self, thread, structure, of_loss):
        observer = self._observer
        try:
            before = thread.slot[0], thread.slot[1]
            if not observer.begin(thread):
                return None
            if observer.steps.backward(of_loss):
                observer.open_step(thread)
            if observer.capture:
                observer.modules.lent.look_again(thread)
                if observer.reused_outputs.any():
                    with observer.read.unobserved():
                        observer.reused_outputs.tell(thread, structure)
                self._told(thread, True, structure if of_loss else ())
            thread.slot[0] = 0
            thread.slot[1] = engine.BACKWARD
            return before
        except Exception as error:
            observer.failed("backward", error)
            return None

    @spent.sampled
    def _leave(self, thread, before):
        observer = self._observer
        try:
            thread.slot[0], thread.slot[1] = before
            observer.collectives.waited()  # by DDP; but a hook of its communication may have written since
            if observer.capture:
                self._told(thread, False)
        except Exception as error:
            observer.failed("backward", error)

    def _told(self, thread, enter, losses=()):
        observer = self._observer
        observer.hot.backward(thread, observer.names.place(""), enter, losses, observer.port.intern("loss") if enter else 0)

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

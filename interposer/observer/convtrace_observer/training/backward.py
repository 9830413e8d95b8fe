"""The backward pass: which tensor it starts from (the loss), and the phase while it runs."""
import functools

from ..base import engine, frames, replaced, spent


class Backward:
    """Wraps torch.autograd.backward, which Tensor.backward calls, too, and torch.autograd.grad."""

    def __init__(self, observer, torch):
        self._observer = observer
        self._autograd = torch.autograd
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._replaced = replaced.Replaced()

    def install(self):
        for name, records_loss in (("backward", True), ("grad", False)):
            self._replaced.set(self._autograd, name, self._wrap(getattr(self._autograd, name), records_loss))

    def remove(self):
        self._replaced.put_back()

    def _wrap(self, original, records_loss):
        observer, graph_task = self._observer, self._graph_task
        run = observer.operations.backward_call(original)

        @frames.unseen
        @functools.wraps(original)
        def started(*args, **kwargs):
            # A backward inside a backward (reentrant checkpoint) starts from no loss.
            if observer.is_compiling():
                return original(*args, **kwargs)
            before = None
            try:
                if observer.is_tracing() or not observer.active or graph_task() != -1:
                    return original(*args, **kwargs)
                thread = observer.threads.state
                before = self._enter(thread, args, kwargs, records_loss)
                return run(*args, **kwargs)
            except BaseException as error:
                frames.hide(error)
                raise
            finally:
                if before is not None:
                    self._leave(thread, before)

        return started

    @spent.sampled
    def _enter(self, thread, args, kwargs, records_loss):
        observer = self._observer
        try:
            before = thread.slot[0], thread.slot[1]
            if not observer.begin(thread):
                return None
            if observer.steps.backward(records_loss):
                observer.open_step(thread)
            if records_loss and observer.capture:
                self._record(thread, args[0] if args else kwargs.get("tensors"))
            if observer.capture:
                observer.modules.lent.look_again(thread)
            if observer.capture and observer.reused_outputs.any():
                with observer.read.unobserved():
                    observer.reused_outputs.tell(thread, args[0] if args else kwargs.get("tensors", kwargs.get("outputs")))
            if observer.capture:
                self._mark(thread, 1)
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
                self._mark(thread, 0)
        except Exception as error:
            observer.failed("backward", error)

    def _mark(self, thread, enter):
        """A scope record of the whole pass."""
        observer = self._observer
        place = observer.names.place("")
        call = observer.occurrence(place, engine.BACKWARD, enter)
        thread.batch.scope(engine.BACKWARD, enter, place.id, call)
        observer.submit(thread)

    def _record(self, thread, structure):
        """Packs the loss, which goes with the mark behind it."""
        observer = self._observer
        place = observer.names.place("")
        slot = observer.port.intern("loss")
        with observer.read.unobserved():
            for tensor in observer.read.tensors(structure):
                value = observer.read(tensor)
                if value is not None:
                    call = observer.occurrence(place, engine.LOSS_PHASE, slot)
                    thread.batch.tensor(engine.LOSS_PHASE, observer.full, place.id, call, slot, 0,
                                        value)

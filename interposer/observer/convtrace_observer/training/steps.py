"""When a training step begins, and which calls are evaluation (docs/recording.md "Steps").

A step has the number of the optimizer phases before it: the first call of a root behind one opens
the next, or a backward pass does, for programs whose forward runs no hook (compiled in place, or
functions instead of modules). An optimizer that nothing is seen of (a compiled step, weights changed
by hand) shows by the weights when the root is called again after a backward pass.

In a program that trains, calls that nothing is learned from are evaluation, and open no more than
the step that is next anyhow. They are counted apart, so that the number of them changes no key of
training. A program without an optimizer and a backward pass does inference: there every further
call of a root is a step; another root (a decoder after its encoder) belongs to the step that is open.
"""


class Steps:
    def __init__(self):
        self.index = -1  # -1: none was opened
        self._optimized = False
        self._trained = False
        self._prepared = False  # there is an optimizer
        self._under_way = False  # the open step contains a training call or a backward pass
        self._graded = False  # it contains evaluation with gradients switched on
        self._trains_in_eval = False  # modules in eval mode are trained, or gradients pass through them
        self.behind_backward = False  # no root was called since the last backward pass
        self.sees_optimizer = False
        self._first_update = None  # the step with the first optimizer phase
        self._made_before = {}  # from the first observed step of optimizers to the updates they had counted
        self._told = 0

    def root_forward(self, entry, training, gradients, behind_evaluation, has_optimizer):
        """How a call of a root counts. `training`: the module's mode. `gradients`: they are switched
        on. `behind_evaluation`: so was the last root of this thread. `has_optimizer()`: asked until
        it is true.
        @return (whether it opens a step, whether it is evaluation)"""
        self.behind_backward = False
        infers = not (self._trained or self._prepared)
        if infers:
            self._prepared = has_optimizer()
        begins_training = infers and self._prepared
        again = entry.seen_in_step == self.index
        opened = self._open(infers and (again or begins_training))
        if infers and not begins_training:
            entry.seen_in_step = self.index
            return opened, False
        if gradients and (training or self._trains_in_eval):
            self._under_way = True
            entry.seen_in_step = self.index
            return opened, False
        # After a training call this is a teacher or a target network, whose output the loss uses, unless
        # a model that this step trains is in eval mode now (between two micro-batches).
        evaluates = (not self._under_way or behind_evaluation
                     or not training and entry.seen_in_step == self.index)
        self._graded |= evaluates and gradients
        return opened, evaluates

    def backward(self, of_loss):
        """`of_loss`: false for torch.autograd.grad, which a model may use to compute its outputs."""
        self._trained = True
        opened = self._open(False)
        if of_loss:
            self.behind_backward = True
            self._trains_in_eval |= self._graded and not self._under_way
            self._under_way = True
        return opened

    def scaler_began(self):
        """Called for a GradScaler, which may skip the optimizer's step."""
        if self._first_update is None:
            self._first_update = max(self.index, 0)

    def updates_before(self, counted):
        """How many updates were made before step 0 of this trace, by the optimizers' own counters: in
        a run that was resumed. Negative if steps of inference came before the first update. Of
        optimizers that take turns each is seen first in a step of its own: these add up.
        @param counted  by an optimizer that is about to make its first update here.
        @return None if that is no news."""
        self.scaler_began()
        step = max(self.index, 0)
        self._made_before[step] = max(self._made_before.get(step, 0), counted)
        before = sum(self._made_before.values()) - self._first_update
        news, self._told = before != self._told, before
        return before if news else None

    def optimizer_ended(self):
        """Several in a row without a forward between (per parameter group, per ZeRO partition) are
        one phase."""
        self._trained = True
        self._optimized = True
        self.sees_optimizer = True

    def misses_optimizer(self, entry):
        """Whether an optimizer phase may have gone unseen before this call of a root."""
        return (self._trained and not self.sees_optimizer and not self._optimized
                and entry.seen_in_step == self.index)

    def unseen_optimizer_ended(self):
        self._optimized = True

    def _open(self, also_if):
        if self.index >= 0 and not self._optimized and not also_if:
            return False
        self.index += 1
        self._optimized = self._under_way = self._graded = False
        return True

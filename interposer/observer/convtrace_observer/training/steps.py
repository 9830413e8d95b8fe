"""Decides where training steps begin and which calls are evaluation (docs/recording.md "Steps").

The number of a step is the number of optimizer phases before it. The first call of a root after an
optimizer phase opens the next step, or a backward pass does, for programs whose forward runs no hook
(compiled in place, or functions instead of modules). An optimizer that is not observed (a compiled
step, weights changed by hand) shows in the weights when the root is called again after a backward pass.

In a program that trains, calls that nothing is learned from are evaluation. They open at most the
next step, and are counted separately, so that their number changes no key of training. A program
without an optimizer and a backward pass does inference: every further call of a root is a step, and
another root (a decoder after its encoder) belongs to the open step.
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
        """Classifies a call of a root. `training`: the module is in training mode. `gradients`: they are
        switched on. `behind_evaluation`: this thread's last root was evaluation. `has_optimizer()`: called
        until it is true.
        @return (whether the call opens a step, whether it is evaluation)"""
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
        """Counts a backward pass. `of_loss`: false for torch.autograd.grad, which a model may use to compute its outputs.
        @return whether it opens a step."""
        self._trained = True
        opened = self._open(False)
        if of_loss:
            self.behind_backward = True
            self._trains_in_eval |= self._graded and not self._under_way
            self._under_way = True
        return opened

    def scaler_began(self):
        """Notes that a GradScaler, which may skip the optimizer's step, began one."""
        if self._first_update is None:
            self._first_update = max(self.index, 0)

    def updates_before(self, counted):
        """Computes the number of updates before step 0 of this trace in a resumed run, from the optimizers' own
        counters. It is negative if steps of inference came before the first update. Optimizers that take turns
        are each first seen in a step of their own, so their counts add up.
        @param counted  the counter of an optimizer that is about to make its first update in this process.
        @return the number; None if it is unchanged."""
        self.scaler_began()
        step = max(self.index, 0)
        self._made_before[step] = max(self._made_before.get(step, 0), counted)
        before = sum(self._made_before.values()) - self._first_update
        news, self._told = before != self._told, before
        return before if news else None

    def optimizer_ended(self):
        """Notes the end of an optimizer's step. Several without a forward between them (per parameter group,
        per ZeRO partition) are one phase."""
        self._trained = True
        self._optimized = True
        self.sees_optimizer = True

    def misses_optimizer(self, entry):
        """@return whether an optimizer phase may have been missed before this call of a root."""
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

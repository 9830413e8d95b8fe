"""When a training step begins (docs/design.md "Steps").

A root forward opens a step if an optimizer phase has ended since the last one opened. A program
that never trained is doing inference: there every further call of a root module is a step; another
root (a loss module after the model, a decoder after its encoder) belongs to the step that is open.
From the first call on that prepares a backward pass it is not: several may lead to one loss.
An optimizer that nothing is seen of (a compiled step, weights changed by hand) shows by the weights
when the root is called again after a backward pass.
backward() opens a step in the same way, for programs whose forward runs no hook (compiled in
place, or functions instead of modules).
"""


class Steps:
    def __init__(self):
        self.index = -1  # -1: none was opened
        self._optimized = False
        self._trained = False
        self._prepared = False  # calls for a first backward pass have begun
        self.sees_optimizer = False

    def root_forward(self, entry, prepares_training):
        """Whether this call of a root opens a step. `prepares_training()`: of a program that has
        not trained yet, whether this call is for that."""
        again = entry.seen_in_step == self.index
        infers = not (self._trained or self._prepared)
        if infers:
            self._prepared = prepares_training()
        opened = self._open(again and infers)
        entry.seen_in_step = self.index
        return opened

    def backward(self):
        self._trained = True
        return self._open(False)

    def optimizer_began(self):
        self.sees_optimizer = True

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
        self._optimized = False
        return True

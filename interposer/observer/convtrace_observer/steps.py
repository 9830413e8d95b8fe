"""When a training step begins (docs/design.md "Steps").

A root forward opens a step if an optimizer phase has ended since the last one opened. A program
that never trained is doing inference: there every further call of a root module is a step; another
root (a loss module after the model, a decoder after its encoder) belongs to the step that is open.
backward() opens a step in the same way, for programs whose forward runs no hook (compiled in
place, or functions instead of modules).
"""


class Steps:
    def __init__(self):
        self.index = -1  # -1: none was opened
        self._optimized = False
        self._trained = False

    def root_forward(self, entry):
        """Whether this call of a root opens a step."""
        again = entry.seen_in_step == self.index
        opened = self._open(again and not self._trained)
        entry.seen_in_step = self.index
        return opened

    def backward(self):
        self._trained = True
        return self._open(False)

    def optimizer_ended(self):
        """Several in a row without a forward between (per parameter group, per ZeRO partition) are
        one phase."""
        self._trained = True
        self._optimized = True

    def _open(self, also_if):
        if self.index >= 0 and not self._optimized and not also_if:
            return False
        self.index += 1
        self._optimized = False
        return True

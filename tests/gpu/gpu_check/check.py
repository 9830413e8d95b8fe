"""How a section lists its checks."""
import collections

Check = collections.namedtuple("Check", "name run seconds full_only alone")


class Checks(list):
    """The checks of one section, filled by the decorator `checks.add(...)`.

    A check is a function of a Bench that returns its numbers (a flat dict), or raises Skip or Failure.
    """

    def add(self, name, seconds, full_only=False, alone=False):
        """seconds: about how long it takes on a GPU; it is not begun with less time left.
        alone: it measures time, or takes the whole GPU, so that nothing may run beside it."""
        def register(function):
            self.append(Check(name, function, seconds, full_only, alone))
            return function
        return register

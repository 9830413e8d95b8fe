"""Common parts of the observer's tests: torch or a skip, and an observer over the fake engine."""
import gc
import sys
import unittest

SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt

try:
    import torch
except ImportError:
    print("skipped: %s has no torch" % sys.executable)
    sys.exit(SKIPPED)

import fake_engine  # noqa: E402
from convtrace_observer.training import optimizer  # noqa: E402


class ObservedTest(unittest.TestCase):
    """A test with an observer in this process. `self.fake` records its messages during the test."""

    mode = "stats"
    settings = {}

    def setUp(self):
        torch.manual_seed(0)
        self.fake, self.observer = fake_engine.observe(torch, self.mode, self.settings)

    def tearDown(self):
        self.assertEqual([d.text for d in self.fake.of("diagnostic")], [])
        self.assertEqual(self.fake.errors, [])
        self.observer.remove()
        gc.collect()

    def without_optimizers(self):
        """Hides the optimizers that were made in this process from the observer. The test must make none."""
        for kind in optimizer._subclasses(torch.optim.Optimizer):
            if getattr(kind.step, "hooked", False):
                self.addCleanup(setattr, kind.step, "hooked", True)
                kind.step.hooked = False

    def steps(self):
        return [message.index for message in self.fake.of("step")]

    def calls(self, **wanted):
        """@return [(scope, call, slot)] of the matching tensor records, in order."""
        return [(t.scope, t.call, t.slot) for t in self.fake.tensors(**wanted)]

    def entered(self):
        return [(s.scope, s.call) for s in self.fake.of("scope")
                if s.enter and s.phase != "backward"]


def qualified_names(module):
    return [name for name, _ in module.named_modules(remove_duplicate=True)]

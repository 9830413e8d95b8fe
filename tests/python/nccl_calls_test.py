"""A call of torch.distributed with CUDA tensors is recorded by the observer only if the engine has recorded none of NCCL on
that thread meanwhile. Needs no GPU: tensors and the call are stand-ins."""
import contextlib
import unittest
from types import SimpleNamespace

import fake_engine  # noqa: F401 - finds the observer
from convtrace_observer.calls import collectives


class Told(collectives.Collectives):
    """Collectives that note the calls of their methods, in `order`."""

    def __init__(self, order, active=True):
        self.slot, self.order, self.failures = [0, 0, 0], order, []
        read = SimpleNamespace(unobserved=contextlib.nullcontext)
        self._observer = SimpleNamespace(active=active, read=read, failed=lambda *what: self.failures.append(what),
                                         threads=SimpleNamespace(state=SimpleNamespace(slot=self.slot)))

    def called(self, op, args):
        self.order.append("recorded")
        return "pending"

    def follow(self, pending, result):
        self.order.append("followed")


class Calls(unittest.TestCase):
    CUDA, CPU = SimpleNamespace(is_cuda=True), SimpleNamespace(is_cuda=False)

    def run_call(self, args, nccl_calls, active=True):
        """@return the events of a call, in order."""
        order = []
        told = Told(order, active)

        def redispatch(keys, *args):
            order.append("called")
            told.slot[2] += nccl_calls
            return "result"

        op = collectives._Op("call", *range(args.index("group") if "group" in args else len(args)))
        collectives._told[:] = [told]
        self.addCleanup(collectives._told.clear)
        self.assertEqual(collectives._call_kernel(op, redispatch, 1)(1, *args), "result")
        self.assertEqual(told.failures, [])
        return order

    def test_of_nccl_is_left_to_the_preload_library(self):
        for args in ([self.CUDA], "group"), (self.CUDA, "group"), ([[self.CUDA]], [self.CUDA], "group"), ([], [self.CUDA], "group"):
            self.assertEqual(self.run_call(args, 1), ["called"])
        self.assertEqual(self.run_call(([self.CUDA],), 3), ["called"])

    def test_of_another_backend_is_recorded_when_it_has_returned(self):
        """Facts that are known only when the call is complete, such as a source, are then waited for."""
        self.assertEqual(self.run_call(([self.CUDA], "group"), 0), ["called", "recorded", "followed"])

    def test_of_host_memory_is_recorded_before_it_runs(self):
        for args in ([self.CPU], "group"), (self.CPU, "group"), ("group",), ([], [[]], "group"):
            self.assertEqual(self.run_call(args, 0), ["recorded", "called", "followed"])

    def test_of_an_observer_that_has_ended_does_not_count(self):
        self.assertEqual(self.run_call(([self.CUDA],), 0, active=False), ["recorded", "called", "followed"])

    def test_without_an_observer_runs_alone(self):
        collectives._told[:] = []
        self.assertEqual(collectives._call_kernel(None, lambda keys, *args: args, 1)(1, 5), (5,))


if __name__ == "__main__":
    unittest.main()

"""Code of the program that runs inside the observer: finalizers, handlers of signals, other threads."""
import ctypes
import gc
import os
import signal
import subprocess
import tempfile
import threading
import types
import unittest
import unittest.mock
import weakref

from support import ObservedTest, fake_engine, torch
from convtrace_observer.base import engine
from convtrace_observer.calls import ops
from convtrace_observer.observer import Observer
from torch import nn


class Many(nn.Module):
    def forward(self, x):
        return [x + i for i in range(12)]


class Reentry(ObservedTest):
    def outputs(self, scope):
        return [t.slot for t in self.fake.tensors(scope=scope) if t.slot.startswith("output")]

    def test_a_module_that_is_called_while_another_ones_outputs_are_packed(self):
        outer, inner, intern, inside = nn.Sequential(Many()), nn.ReLU(), self.observer.port.intern, []

        def interrupted(text):
            if text in ("output:3", "output:9"):
                inside.append(inner(torch.zeros(20)))
            return intern(text)

        self.observer.port.intern = interrupted
        outer(torch.ones(3))
        self.assertEqual(len(inside), 2)
        self.assertEqual(self.outputs("0"), ["output:%d" % i for i in range(12)])
        self.assertEqual(self.outputs(""), ["output:%d" % i for i in range(12)])
        self.assertEqual(len(self.fake.tensors(shape=(20,), slot="output:0")), 2)

    def test_finalizers_that_call_modules(self):
        model, inner, ran = nn.Sequential(Many(), nn.Identity()), nn.ReLU(), []

        class Finalized:
            def __init__(self):
                self.self = self

            def __del__(self):
                ran.append(inner(torch.zeros(20)))

        model(torch.ones(3))
        threshold = gc.get_threshold()
        self.addCleanup(gc.set_threshold, *threshold)
        gc.set_threshold(1)
        for _ in range(20):
            Finalized()
            model(torch.ones(3))
        gc.set_threshold(*threshold)
        gc.collect()
        self.assertEqual(len(ran), 20)
        self.assertEqual(len(self.fake.tensors(shape=(20,), slot="output:0")), 20)
        self.assertEqual(self.outputs("0"), ["output:%d" % i for i in range(12)] * 21)

    def test_an_interrupt_inside_the_observer_is_the_programs(self):
        model, intern = nn.Sequential(Many()), self.observer.port.intern
        model(torch.ones(1))
        for text in ("input:1", "output:12"):
            self.observer.modules.forget(), self.observer.hot.forget()

            def interrupted(asked, text=text):
                if asked == text:
                    raise KeyboardInterrupt
                return intern(asked)

            self.observer.port.intern = interrupted
            self.observer.port._ids.clear()
            many = Many()
            many.forward = lambda x, y: [x] * 13
            with self.assertRaises(KeyboardInterrupt):
                many(torch.ones(1), torch.ones(1))
            self.assertIsNone(self.observer.threads.state.entry)
            self.assertEqual(self.fake.slot()[:2], (None, 0))

    def test_two_threads_that_ask_for_the_same_slot_first(self):
        intern, asking, results = self.observer.port.intern, threading.Barrier(2, timeout=60), []
        models = [Many(), Many()]
        for model in models:
            model(torch.ones(1))
        self.observer.modules.forget(), self.observer.hot.forget()
        self.fake.messages.clear()
        asked = []

        def slow(text):
            if text == "output:0" and len(asked) < 2:
                asked.append(text)
                asking.wait()
            return intern(text)

        self.observer.port.intern = slow
        threads = [threading.Thread(target=lambda m=model: results.append(m(torch.ones(1)))) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(asked), 2)
        slots = [t.slot for t in self.fake.of("tensor") if t.slot.startswith("output")]
        self.assertEqual(sorted(slots), sorted(2 * ["output:%d" % i for i in range(12)]))

    def test_a_thread_that_comes_while_another_one_starts_the_trace(self):
        starting, started = threading.Event(), threading.Event()

        def start():
            starting.set()
            if threading.current_thread() is first:
                started.wait(5)
            self.fake.answer = engine.SUBMIT_CAPTURE
            return True

        self.observer.port.start = start
        self.fake.answer = engine.SUBMIT_OFF  # as of an engine that has not started
        first = threading.Thread(target=lambda: nn.ReLU()(torch.ones(1)))
        first.start()
        starting.wait(5)
        nn.Identity()(torch.ones(2))
        started.set()
        first.join()
        self.assertTrue(self.observer.active)
        self.assertEqual(len(self.fake.tensors(slot="output:0")), 2)
        self.assertEqual(len([f for f in self.fake.of("fact") if f.name == "version.torch"]), 1)

    def test_models_that_two_threads_call_first_have_names_of_their_own(self):
        place = self.observer.names.place
        other = threading.Thread(target=lambda: nn.Sequential(nn.Linear(2, 2))(torch.ones(1, 2)))

        def interrupted(name):
            if name == "0" and not other.ident:
                other.start()
                other.join()
            return place(name)

        self.observer.names.place = interrupted
        nn.Sequential(nn.Linear(3, 3))(torch.ones(1, 3))
        self.assertEqual({(t.shape[-1], t.scope) for t in self.fake.tensors(slot="output:0") if t.scope.endswith("0")},
                         {(3, "0"), (2, "Sequential#2.0")})

    def test_classes_of_arguments_are_not_kept(self):
        model = nn.Identity()

        def use():
            kind = type("Config", (), {})
            many = Many()
            many.forward = lambda x, config: x
            many(torch.ones(1), kind())
            return weakref.ref(kind)

        model(torch.ones(1))
        kind = use()
        gc.collect()
        self.assertIsNone(kind())

    def test_one_of_61_calls_is_timed(self):
        model = nn.Identity()
        for _ in range(305):
            model(torch.ones(1))
        spent = [message.ns for message in self.fake.of("spent")]
        self.assertGreaterEqual(len(spent), 8)
        self.assertLessEqual(len(spent), 30)
        self.assertGreater(min(spent), 61 * 100)


class Interruptions(ObservedTest):
    def test_an_exception_in_a_module_leaves_the_stack_clean(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(9, 9))
        for _ in range(2):
            with self.assertRaises(RuntimeError):
                model(torch.randn(2, 4))
            self.assertEqual(self.fake.slot(), (None, 0, "forward"))
        enters = [s.scope for s in self.fake.of("scope") if s.enter]
        leaves = [s.scope for s in self.fake.of("scope") if not s.enter]
        self.assertEqual(sorted(enters), sorted(leaves))

    def test_an_interrupt_in_a_module_is_forgotten_at_the_next_root(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Identity())

        def interrupt(*_):
            raise KeyboardInterrupt

        handle = model[1].register_forward_pre_hook(interrupt)
        with self.assertRaises(KeyboardInterrupt):
            model(torch.randn(2, 4))
        handle.remove()
        self.fake.messages.clear()
        model(torch.randn(2, 4))
        self.assertEqual(self.steps(), [1])
        self.assertEqual([s.scope for s in self.fake.of("scope") if s.enter], ["", "0", "1"])
        self.assertEqual(self.fake.slot(), (None, 0, "forward"))

    def test_a_module_that_calls_itself_is_no_leftover(self):
        model = nn.Module()
        model.forward = lambda x, depth=2: model(x, depth - 1) if depth else x
        model(torch.randn(2, 4))
        self.assertEqual([(s.scope, s.call) for s in self.fake.of("scope") if s.enter],
                         [("", 0), ("", 1), ("", 2)])
        self.assertEqual(self.steps(), [0])

    def test_what_a_signal_handler_raises_inside_the_observer_is_the_programs(self):
        def too_slow(*_):
            raise TimeoutError

        before = signal.signal(signal.SIGALRM, too_slow)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.fake.on_tensor = lambda tensor: signal.raise_signal(signal.SIGALRM)
        with self.assertRaises(TimeoutError):
            nn.Linear(4, 4)(torch.randn(2, 4))
        self.fake.on_tensor = None
        self.assertEqual(self.fake.slot(), (None, 0, "forward"))
        # Where a missing function of torch would do no harm: at the first call, and at an op's.
        observer, interrupted = self.observer, lambda *_: signal.raise_signal(signal.SIGALRM)
        for target, name in ((torch._C, "_dispatch_get_all_op_names"), (torch, "get_num_threads")):
            observer._begun = False
            with unittest.mock.patch.object(target, name, interrupted), self.assertRaises(TimeoutError):
                nn.Linear(4, 4)(torch.randn(2, 4))
        with self.assertRaises(TimeoutError):
            ops._Tags(interrupted, id).of(torch.ops.aten.add)

    def test_our_own_failure_never_reaches_the_program(self):
        model = nn.Linear(4, 4)
        for _ in range(5):
            self.observer.threads.state.batch.messages = None
            self.assertEqual(model(torch.randn(2, 4)).shape, (2, 4))
        texts = [d.text for d in self.fake.of("diagnostic")]
        self.assertEqual(len(texts), 2)
        self.assertRegex(texts[0], "CT-1301 .*AttributeError")
        self.assertIn("not observed any more", texts[1])
        self.assertFalse(self.observer.active)
        self.assertEqual([(one.reason, one.count) for one in self.fake.of("loss")], 5 * [(engine.LOST_OBSERVER_FAILED, 1)])
        self.fake.messages.clear()

    def test_what_torch_refuses_is_a_value_that_was_not_read(self):
        model = nn.Linear(4, 4)
        model(torch.randn(2, 4))
        for _ in range(7):
            self.observer.failed("saved memory", NotImplementedError("Cannot access storage of TensorWrapper"))
        model(torch.randn(2, 4))
        self.assertEqual([(one.reason, one.count) for one in self.fake.of("loss")], [(engine.LOST_TENSOR_KIND, 7)])
        told = [d.text for d in self.fake.of("diagnostic")]
        self.assertEqual(told, ["CT-1304 not read and counted: saved memory: Cannot access storage of TensorWrapper"])
        self.assertEqual(len(self.fake.tensors(slot="output:0")), 2)
        self.fake.messages.clear()

    def test_a_part_that_torch_refuses_to_install_is_a_failure(self):
        def refuse():
            raise RuntimeError("cannot add a hook")

        self.observer.remove()
        self.observer._parts += types.SimpleNamespace(install=refuse, remove=lambda: None),
        self.observer._begun = False
        self.observer.install()
        nn.Linear(4, 4)(torch.randn(2, 4))
        self.assertEqual([(one.reason, one.count) for one in self.fake.of("loss")], [(engine.LOST_OBSERVER_FAILED, 1)])
        self.assertEqual([one.text for one in self.fake.of("diagnostic")],
                         ["CT-1301 SimpleNamespace hooks: RuntimeError: cannot add a hook"])
        self.fake.messages.clear()

    def test_a_failure_before_the_trace_begins_is_told_with_its_first_record(self):
        self.observer._begun = False
        self.observer.failed("hooks", AttributeError("none"))
        self.assertEqual(self.fake.messages, [])
        nn.Linear(4, 4)(torch.randn(2, 4))
        self.assertEqual([one.count for one in self.fake.of("loss")], [1])
        self.assertEqual([one.text for one in self.fake.of("diagnostic")], ["CT-1301 hooks: AttributeError: none"])
        self.fake.messages.clear()


@unittest.skipIf(fake_engine.PART == "python", "Python runs handlers between its own instructions")
class Signals(unittest.TestCase):
    """A signal that arrives in C++: its handler runs before the module call begins."""

    SOURCE = """
#include <signal.h>
unsigned slot[6];
unsigned submit(const void* messages, unsigned bytes) { raise(SIGALRM); return 1; }
void* scope_slot(void) { return slot; }
"""

    def test_a_handler_that_raises_leaves_no_call_open(self):
        def too_slow(*_):
            raise TimeoutError

        with tempfile.TemporaryDirectory() as folder:
            source, library = os.path.join(folder, "submit.c"), os.path.join(folder, "submit.so")
            with open(source, "w") as file:
                file.write(self.SOURCE)
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source], check=True)
            raising = ctypes.CDLL(library)
        fake = fake_engine.FakeEngine()
        fake.stand_ins = [ctypes.cast(function, ctypes.c_void_p) for function in (raising.submit, raising.scope_slot)]
        fake.slots[threading.get_ident()] = (ctypes.c_uint32 * 6).in_dll(raising, "slot")
        observer = Observer(torch, engine.Engine(fake))
        self.assertIn("built-in", repr(observer.hot.enter))
        observer.install()
        self.addCleanup(observer.remove)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, signal.SIG_IGN))
        model = nn.Identity()
        model(torch.ones(2))  # Python reads what a first call has more
        signal.signal(signal.SIGALRM, too_slow)
        for _ in range(3):
            with self.assertRaises(TimeoutError):
                model(torch.ones(2))
            self.assertIsNone(observer.threads.state.entry)
            self.assertEqual(fake.slot()[:2], (None, 0))


if __name__ == "__main__":
    unittest.main()

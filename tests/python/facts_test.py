"""Facts that the observer records about the program: classes and settings of modules, settings of optimizers,
code; and the distinct names of several models in one script."""
import collections
import contextlib
import functools
import gc
import importlib
import os
import sys
import tempfile
import unittest
import warnings
import weakref
from unittest import mock

from support import ObservedTest, torch
from convtrace_observer.calls import naming
from convtrace_observer.facts import code_facts, program_facts, sources, versions

nn = torch.nn


class Scaled(nn.Module):
    def __init__(self, scale=0.5, name="x" * 200):
        super().__init__()
        self.scale, self.name, self._hidden, self.sizes = scale, name, 1, (2, 3)
        self.kind = torch.bfloat16
        self.inner = nn.Dropout(0.25)

    def extra_repr(self):
        raise AssertionError("the program's code is not called")

    def forward(self, x):
        return self.inner(x) * self.scale


class ModuleFacts(ObservedTest):
    def facts(self, scope=None):
        return {(f.scope, f.name): f.value for f in self.fake.of("event_fact")
                if f.scope is not None and scope in (None, f.scope)}

    def test_settings_of_an_update_are_of_the_step_that_its_closure_opens(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(1, 2)).sum()
            loss.backward()
            return loss

        for step in range(3):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.step(closure)
        told, step = [], None
        for message in self.fake.messages:
            if message.kind == "step":
                step = message.index
            elif message.kind == "event_fact" and message.name == "optimizer.0.0.lr":
                told.append((step, message.value))
        self.assertEqual(told, [(step, repr(0.1 / (1 + step))) for step in range(3)])

    def test_a_loss_of_a_large_graph_is_recorded_and_costs_no_more(self):
        model, functional = nn.Linear(2, 2), nn.functional
        scores = model(torch.randn(3, 2))
        doubled = summed = functional.mse_loss(scores, torch.zeros(3, 2))
        for _ in range(40):
            doubled = doubled + doubled  # 2 ** 40 ways through the graph
        for _ in range(3000):
            summed = summed + functional.mse_loss(scores, torch.ones(3, 2))  # deeper than Python's stack
        doubled.backward(retain_graph=True)
        summed.backward()
        self.assertEqual(len(self.fake.tensors(slot="loss")), 2)
        self.assertEqual(self.fake.of("loss"), [])

    def test_the_function_of_a_loss_and_where_it_is_passed_back(self):
        model, functional = nn.Linear(2, 2), nn.functional
        scores = model(torch.randn(3, 2))
        functional.mse_loss(scores, torch.zeros(3, 2), reduction="sum").backward(retain_graph=True)
        (scores.abs().mean() * 2 + functional.l1_loss(scores, torch.ones(3, 2)) / 3).view(1).backward()
        line = sys._getframe().f_lineno - 1
        told = {f.name: f.value for f in self.fake.of("event_fact") if f.name.startswith(("loss.", "backward."))}
        self.assertEqual(told, {
            "loss.backward": "function=MseLoss, reduction=sum", "backward.call": "facts_test.py:%d" % (line - 1),
            "loss.backward:1": "function=Add(Mean(Abs) Mean(Abs))", "backward.call:1": "facts_test.py:%d" % line})

    def test_a_module_tells_class_places_and_attributes_at_its_first_call(self):
        model = Scaled()
        model(torch.ones(2)); line = sys._getframe().f_lineno  # noqa: E702
        first = Scaled.forward.__code__.co_firstlineno
        self.assertEqual(self.facts(), {
            ("", "class"): Scaled.__module__ + ".Scaled",
            ("", "forward"): "facts_test.py:%d" % first, ("", "call"): "facts_test.py:%d" % line,
            ("", "attributes"): "kind=torch.bfloat16, scale=0.5, sizes=(2, 3)",
            ("inner", "class"): "torch.nn.modules.dropout.Dropout",
            ("inner", "forward"): self.facts()["inner", "forward"],
            ("inner", "call"): "facts_test.py:%d" % (first + 1),
            ("inner", "attributes"): "inplace=False, p=0.25"})
        self.assertRegex(self.facts()["inner", "forward"], r"^torch/nn/modules/dropout\.py:\d+$")
        self.fake.messages.clear()
        model(torch.ones(2))
        self.assertEqual(self.facts(), {})

    def test_a_hook_that_one_place_has_twice_is_told_once(self):
        def halved(*given):
            return given[-1] * 0.5

        def scaled(by):
            return lambda *given: given[-1] * by

        class Owner:
            def hook(self, *given):
                return given[-1]

        def twice(register, hook_of, other=None):
            register(hook_of())
            register((other or hook_of)())

        model, owner = nn.Sequential(*(nn.Linear(2, 2) for _ in range(5))), Owner()
        twice(model[0].weight.register_hook, lambda: halved)
        twice(model[0].register_forward_hook, lambda: scaled(0.5))  # two functions of one code
        twice(model[1].register_forward_hook, lambda: owner.hook)
        twice(model[2].register_forward_hook, lambda: functools.partial(halved, owner), lambda: functools.partial(halved, model))
        twice(model[3].register_forward_hook, lambda: scaled(0.5), lambda: scaled(0.25))
        twice(model[4].register_forward_hook, lambda: Owner().hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        told = [(one.scope, one.value.partition(" (")[0]) for one in self.fake.of("event_fact") if one.name == "hook.twice"]
        self.assertEqual(told, [("0", "forward hook, <lambda>"), ("0", "hook of weight, halved"), ("1", "forward hook, hook")])

    def test_hooks_of_modules_are_told_once_and_when_they_change(self):
        def log(module, args, output):
            return None

        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        model[1].register_forward_hook(log)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            if step == 1:
                model[1].register_full_backward_hook(log)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        told = [(one.scope, one.value.count("log (")) for one in self.fake.of("event_fact") if one.name == "hooks"]
        self.assertEqual(told, [("1", 1), ("1", 2)])

    def test_a_module_that_is_called_under_autocast_tells_its_type(self):
        class Half(nn.Sequential):
            def forward(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    x = self[0](x)
                return self[1](x.float())

        Half(nn.Linear(2, 2), nn.ReLU())(torch.ones(1, 2))
        self.assertEqual([key for key in self.facts() if key[1] == "autocast"], [("0", "autocast")])
        self.assertEqual(self.facts()["0", "autocast"], "cpu=torch.bfloat16")

    def test_the_call_is_the_programs_whatever_of_torch_lies_between(self):
        model = nn.Sequential(nn.Sequential(nn.ReLU()))
        model(torch.ones(2)); line = sys._getframe().f_lineno  # noqa: E702
        self.assertEqual(self.facts()["0.0", "call"], "facts_test.py:%d" % line)

    def test_a_module_made_anew_in_every_step_is_told_once(self):
        for _ in range(3):
            nn.Softmax(dim=1)(torch.ones(2, 2))
        self.assertEqual(sum(f.name == "class" for f in self.fake.of("event_fact")), 1)

    def test_an_attribute_that_the_program_sets_is_told_in_the_next_step(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        told = []
        for p in (0.1, 0.1, 0.2, 0.2, 0.3):
            model[1].p = p
            for _ in range(2):
                model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            told.append([f.value for f in self.fake.of("event_fact") if f.scope == "1" and f.name != "call"])
            self.fake.messages.clear()
        self.assertIn("inplace=False, p=0.1", told[0])
        self.assertEqual(told[1:], [[], ["inplace=False, p=0.2"], [], ["inplace=False, p=0.3"]])

    def test_what_changes_in_every_step_is_told_a_few_times(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for model.count in range(30):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        told = [f.value for f in self.fake.of("event_fact") if f.name == "attributes"]
        self.assertEqual(len(told), 1 + program_facts.MAX_CHANGES)

    def test_attributes_that_a_list_of_tensors_is_in_are_left_out(self):
        model = nn.ReLU()
        model.ones, model.many, model.nested = [torch.ones(1)], list(range(100)), ((1,),)
        model(torch.ones(2))
        self.assertEqual(self.facts()["", "attributes"], "inplace=False")


class LossFacts(ObservedTest):
    def facts(self):
        return [(f.scope, f.name, f.value) for f in self.fake.of("event_fact") if f.name.startswith("loss.")]

    def test_a_loss_function_tells_its_settings_once_and_when_they_change(self):
        out, labels = torch.randn(3, 4), torch.tensor([0, 1, 2])
        for smoothing in (0.0, 0.0, 0.1, 0.0):
            nn.functional.cross_entropy(out, labels, label_smoothing=smoothing)
        nn.functional.nll_loss(out, labels, reduction="sum", ignore_index=1)
        self.assertEqual(self.facts(), [
            ("", "loss.cross_entropy_loss", "reduction='mean', ignore_index=-100, label_smoothing=0.0"),
            ("", "loss.cross_entropy_loss", "reduction='mean', ignore_index=-100, label_smoothing=0.1"),
            ("", "loss.nll_loss_nd", "reduction='sum', ignore_index=1")])

    def test_labels_that_are_shares_are_no_indices_and_the_settings_are_told_all_the_same(self):
        nn.functional.cross_entropy(torch.randn(3, 4), torch.rand(3, 4), label_smoothing=0.2)
        self.assertEqual([value for _, _, value in self.facts()],
                         ["reduction='mean', ignore_index=-100, label_smoothing=0.2"])

    def test_the_place_is_the_module_that_calls_it(self):
        class WithLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.criterion = nn.CrossEntropyLoss()

            def forward(self, x, labels):
                return self.criterion(x, labels)

        WithLoss()(torch.randn(2, 3), torch.tensor([0, 1]))
        self.assertEqual([scope for scope, _, _ in self.facts()], ["criterion"])


class ModuleFactsWithoutValues(ObservedTest):
    mode = "launches"

    def test_modules_are_told_where_values_are_not_wanted(self):
        nn.Linear(2, 2)(torch.ones(1, 2))
        self.assertIn("class", [f.name for f in self.fake.of("event_fact")])


class OptimizerFacts(ObservedTest):
    def told(self):
        found = {f.name: f.value for f in self.fake.of("event_fact") if f.name.startswith("optimizer.")}
        self.fake.messages.clear()
        return found

    def step(self, *optimizers):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.ones_like(parameter)
            optimizer.step()

    def test_settings_are_told_once_and_when_they_change(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}],
                                      betas=(0.9, 0.95), weight_decay=0)
        self.step(optimizer)
        told = self.told()
        self.assertEqual(told["optimizer.0.class"], "torch.optim.adamw.AdamW")
        self.assertEqual(
            [told["optimizer.0.%s" % key] for key in ("0.lr", "1.lr", "0.betas", "1.weight_decay", "0.foreach")],
            ["0.001", "0.5", "(0.9, 0.95)", "0", "None"])
        self.assertFalse([key for key in told if "params" in key])
        self.step(optimizer)
        self.assertEqual(self.told(), {})
        optimizer.param_groups[1]["lr"] = 0.25
        self.step(optimizer)
        self.assertEqual(self.told(), {"optimizer.0.1.lr": "0.25"})

    def test_the_group_of_each_parameter_is_told(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        optimizer = torch.optim.SGD([{"params": [model[0].bias, model[1].bias]}, {"params": [model[1].weight]}], lr=0.1)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        optimizer.add_param_group({"params": [model[0].weight]})
        optimizer.step()
        told = [(one.scope, one.name, one.value) for one in self.fake.of("event_fact") if one.name.startswith("group.")]
        self.assertEqual(told, [("0", "group.bias", "0.0"), ("1", "group.bias", "0.0"), ("1", "group.weight", "0.1"),
                                ("0", "group.weight", "0.2")])

    def test_a_setting_that_changes_in_place_is_told(self):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        optimizer.param_groups[0]["layers"] = [1, 2]
        self.step(optimizer)
        self.assertEqual(self.told()["optimizer.0.0.layers"], "(1, 2)")
        optimizer.param_groups[0]["layers"].append(3)
        self.step(optimizer)
        self.assertEqual(self.told(), {"optimizer.0.0.layers": "(1, 2, 3)"})

    def test_a_setting_in_place_of_another_is_told_and_adds_none(self):
        group = collections.defaultdict(int, params=[nn.Parameter(torch.ones(2))], before=None)
        optimizer = torch.optim.SGD([group], lr=0.1)
        self.step(optimizer)
        self.told()
        group = optimizer.param_groups[0]
        group["behind"] = group.pop("before")
        names = list(group)
        self.step(optimizer)
        self.assertEqual(self.told(), {"optimizer.0.0.behind": "None"})
        self.assertEqual(list(group), names)

    def test_an_optimizer_without_a_hash_is_told_and_not_held(self):
        class Equal(torch.optim.SGD):
            __hash__ = None

            def __eq__(self, other):
                return True

        for number in range(2):
            optimizer = Equal([nn.Parameter(torch.ones(2))], lr=0.1)
            self.step(optimizer)
            self.assertIn("optimizer.%d.class" % number, self.told())
            reference = weakref.ref(optimizer)
            del optimizer
            self.assertIsNone(reference())

    def test_optimizers_that_are_gone_are_forgotten(self):
        known, living = self.observer.optimizers._facts._known, torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        self.step(living)
        for _ in range(3 * program_facts._SWEPT_FIRST):
            self.step(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1))
        self.assertLess(len(known), program_facts._SWEPT_FIRST + 2)
        self.told()
        self.step(living)
        self.assertEqual(self.told(), {})

    def test_a_step_that_gives_its_optimizer_another_token_fails_nothing(self):
        class Reloaded(torch.optim.SGD):
            def step(self, closure=None):
                super().step(closure)
                self.load_state_dict(self.state_dict())

        model = nn.Linear(2, 1)
        optimizer = Reloaded(model.parameters(), lr=0.5)
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        self.assertTrue(self.observer.active)

    def test_a_second_optimizer_has_its_own_number(self):
        first, second = (torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=lr) for lr in (0.1, 0.2))
        self.step(first, second)
        told = self.told()
        self.assertEqual([told["optimizer.%d.0.lr" % i] for i in (0, 1)], ["0.1", "0.2"])

    def test_a_learning_rate_in_a_tensor_is_read_without_an_operator(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Refuse(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                raise AssertionError(function)

        facts = program_facts.OptimizerFacts(self.observer)
        optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(2))], lr=torch.tensor(0.125))
        batch = self.observer.threads.state.batch
        with Refuse():
            known, _ = facts.meet(optimizer, optimizer._zero_grad_profile_name)
            facts.tell(batch, optimizer, optimizer.param_groups, known)
            optimizer.param_groups[0]["lr"] = nn.Linear  # no tensor at all
            facts.tell(batch, optimizer, optimizer.param_groups, known)
        batch.submit()
        self.assertEqual([f.value for f in self.fake.of("event_fact") if f.name.endswith(".lr")],
                         ["0.125", "type"])

    def test_numbers_of_optimizers_end_which_is_told_once(self):
        parameter = nn.Parameter(torch.ones(2))
        parameter.grad = torch.ones(2)
        with mock.patch.object(program_facts, "_MOST_NUMBERED", 4):
            for index in range(12):
                torch.optim.SGD([parameter], lr=0.1 if index < 8 else 0.2).step()
        numbers = [f.name.split(".")[1] for f in self.fake.of("event_fact") if f.name.startswith("optimizer.") and
                   f.name.endswith(".lr")]
        self.assertEqual(numbers, ["0", "1", "2", "3", "4", "4"])
        told, = self.fake.of("diagnostic")
        self.assertIn("CT-1305", told.text)
        self.fake.messages.clear()

    def test_nothing_of_an_optimizer_is_kept(self):
        class Raises(torch.optim.SGD):
            def step(self, closure=None):
                raise MemoryError

        for kind, settings in ((torch.optim.SGD, ("params", "lr")), (torch.optim.SGD, ("lr", "params")), (Raises, ("params", "lr"))):
            with self.subTest(kind=kind, settings=settings):
                parameter = nn.Parameter(torch.ones(2))
                parameter.grad = torch.ones(2)
                optimizer = kind([{name: {"params": [parameter], "lr": 0.1}[name] for name in settings}])
                for _ in range(3):
                    with contextlib.suppress(MemoryError):
                        optimizer.step()
                left = weakref.ref(parameter)
                del parameter, optimizer
                gc.collect()
                self.assertIsNone(left())

    def test_a_learning_rate_elsewhere_is_only_named(self):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        optimizer.param_groups[0]["lr"] = torch.ones((), device="meta")
        facts = program_facts.OptimizerFacts(self.observer)
        known, _ = facts.meet(optimizer, optimizer._zero_grad_profile_name)
        facts.tell(self.observer.threads.state.batch, optimizer, optimizer.param_groups, known)
        self.observer.threads.state.batch.submit()
        self.assertIn("tensor", [f.value for f in self.fake.of("event_fact") if f.name.endswith(".lr")])
        self.observer.read.skipped = 0


class Switches(unittest.TestCase):
    def test_each_that_changes_numerics_is_told(self):
        def told():
            return {name for name in dict(versions.collect(torch)).items() if name[0].startswith("switch.")}

        def precision(owner, value):
            before = owner.fp32_precision
            owner.fp32_precision = value
            return lambda: setattr(owner, "fp32_precision", before)

        def warn_only():
            torch.use_deterministic_algorithms(True, warn_only=True)
            return lambda: torch.use_deterministic_algorithms(False)

        cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
        if not hasattr(cudnn, "conv"):
            self.skipTest("torch before 2.9")
        changes = {"cudnn_conv_fp32_precision": lambda: precision(cudnn.conv, "ieee"),
                   "cudnn_rnn_fp32_precision": lambda: precision(cudnn.rnn, "ieee"),
                   "mkldnn_matmul_fp32_precision": lambda: precision(mkldnn.matmul, "bf16"),
                   "mkldnn_conv_fp32_precision": lambda: precision(mkldnn.conv, "bf16"),
                   "mkldnn_rnn_fp32_precision": lambda: precision(mkldnn.rnn, "bf16"),
                   "deterministic_warn_only": warn_only}
        before = told()
        for name, change in changes.items():
            undo = change()
            try:
                self.assertIn("switch." + name, {fact for fact, _ in told() - before}, name)
            finally:
                undo()


class CodeFacts(unittest.TestCase):
    def hash_of(self, source):
        space = {"__name__": "made_up", "nn": nn}
        exec(compile(source, "made_up.py", "exec"), space)
        return dict(code_facts.Code(torch).of_class(space["Attention"]))

    SOURCE = '''
class Attention(nn.Module):
    """Attends."""
    limit = 3

    def forward(self, x, scale=2.0):
        """Text."""
        if x in {"a", "b"}:
            return [x * scale for _ in range(3)]
        return x
'''

    def test_a_class_is_the_same_whatever_is_said_about_it(self):
        expected = self.hash_of(self.SOURCE)
        self.assertEqual(list(expected), ["code.made_up.Attention"])
        other = "\n\n# a comment\n" + self.SOURCE.replace("Text", "Other text").replace("Attends", "")
        self.assertEqual(self.hash_of(other), expected)

    def test_a_class_is_another_when_it_does_something_else(self):
        expected = self.hash_of(self.SOURCE)
        for old, new in (("x * scale", "x + scale"), ("2.0", "2.5"), ('"b"', '"c"'), ("limit = 3", "limit = 4"),
                         ("(nn.Module)", "(nn.Module, dict)")):
            self.assertNotEqual(self.hash_of(self.SOURCE.replace(old, new)), expected, new)
        by_name = self.SOURCE.replace("scale=2.0", "*, scale=2.0")
        self.assertNotEqual(self.hash_of(by_name), self.hash_of(by_name.replace("2.0", "2.5")))

    def test_docstrings_do_not_count_wherever_they_stand(self):
        inner = self.SOURCE.replace("        return x\n", """
        def inner():
            'Text'
            return x
        return inner
""")
        expected = self.hash_of(inner)
        self.assertEqual(self.hash_of(inner.replace("'Text'", "'Other'")), expected)
        self.assertEqual(self.hash_of(inner.replace('        """Text."""\n', "")), expected)
        self.assertNotEqual(*(self.hash_of(inner.replace('{"a", "b"}', name)) for name in ('"a"', '"b"')))

    DECORATED = '''
import functools
def twice(function):
    %sdef decorated(*args):
        return function(*args) * 2
    return decorated
''' + SOURCE.replace("    def forward", "    @twice\n    def forward")

    def test_a_class_is_what_its_decorators_make_of_it(self):
        expected = self.hash_of(self.SOURCE)
        for wraps in ("", "@functools.wraps(function)\n    "):
            source = self.DECORATED % wraps
            hashes = [self.hash_of(one) for one in (
                source, source.replace("x * scale", "x + scale"), source.replace("* 2", "* 3"))]
            self.assertEqual(len({str(one) for one in (expected, *hashes)}), 4, wraps)
        without = self.SOURCE.replace("    def f", "    @nn.modules.module.torch.no_grad()\n    def f")
        self.assertNotEqual(self.hash_of(without), expected)
        lazy = self.SOURCE + "    @__import__('functools').cached_property\n    def two(self):\n        return 2\n"
        self.assertNotEqual(self.hash_of(lazy), self.hash_of(lazy.replace("return 2", "return 3")))

    def test_a_forward_lies_where_it_was_written_not_in_its_decorator(self):
        space = {"__name__": "made_up", "nn": nn}
        exec(compile(self.DECORATED % "", "made_up.py", "exec"), space)
        for kind in (space["Attention"], type("Derived", (space["Attention"],), {})):
            line = (self.DECORATED % "").splitlines()[code_facts.forward_of(kind).co_firstlineno - 1].strip()
            self.assertIn(line, ("@twice", "def forward(self, x, scale=2.0):"))  # by version of Python
        self.assertIsNone(code_facts.forward_of(dict))

    def test_what_a_function_holds_that_is_data_is_no_code(self):
        source = "def make(path):\n" + "".join("    %s\n" % line for line in self.SOURCE.replace(
            "return x\n", "return path\n").splitlines()) + "    return Attention\nAttention = make('%s')\n"
        self.assertEqual(self.hash_of(source % "a"), self.hash_of(source % "b"))

    def test_nothing_that_a_class_holds_is_asked_what_it_is(self):
        asked = []

        class Kind(type):
            def __getattribute__(cls, name):
                asked.append(name)
                return type.__getattribute__(cls, name)

            def __hash__(cls):
                asked.append("hash")
                return type.__hash__(cls)

        class Late:  # is made when it is first used
            __class__ = property(lambda self: asked.append("late"))

        class Reads(property):
            fget = property(lambda self: asked.append("fget"))

        class Model(nn.Module, metaclass=Kind):
            setting, settings, both = Late(), (Late(), 2.0), Reads(lambda self: 1)
            vars()[3] = "no name"

            def forward(self, x, default=Late()):
                return x

        class Module(type(sys)):
            def __getattribute__(self, name):
                asked.append(name)
                return super().__getattribute__(name)

        asked.clear()
        with mock.patch.dict(sys.modules, made_up=Module("made_up")):
            found = [*code_facts.Code(torch).of_class(Model), *code_facts.packages(), *code_facts.files()]
        self.assertEqual(asked, [])
        self.assertIn("code.facts_test.py.CodeFacts.%s.<locals>.Model" % self._testMethodName, dict(found))

    def test_odd_classes_fail_nothing(self):
        space, deep = {"__builtins__": __builtins__}, ()
        exec("kind = type('Made', (), {'forward': lambda self: 1})", space)
        for _ in range(10000):
            deep = (deep,)

        class Odd(space["kind"]):
            def forward(self, *, scale=1):
                pass

        class Deep:
            layers = deep

        Odd.forward.__kwdefaults__[3] = "no name"
        found = dict(code_facts.Code(torch).of_class(Odd))
        self.assertEqual(len(found), 2)
        self.assertIn("code..Made", found)
        self.assertEqual(dict(code_facts.Code(torch).of_class(Deep)), {})

    def test_a_class_that_was_told_of_may_go(self):
        codes = code_facts.Code(torch)
        kind = type("Made", (nn.Linear,), {"__module__": "made_up"})
        self.assertEqual([name for name, _ in codes.of_class(kind)], ["code.made_up.Made"])
        self.assertEqual(list(codes.of_class(kind)), [])
        gone = weakref.ref(kind)
        del kind
        gc.collect()
        self.assertIsNone(gone())

    def test_sources_are_told_if_they_are_asked_for(self):
        def told():
            found = dict(code_facts.Code(torch).of_class(CodeFacts)) | dict(code_facts.files())
            return {name: text for name, text in found.items() if name.startswith("source.")}

        self.assertEqual(told(), {})
        with mock.patch.object(sources, "are_recorded", True):
            found = told()
            with mock.patch.object(sources, "_BEGUN", 0):  # all files are newer
                self.assertEqual(told(), {})
            with mock.patch.object(sources, "_MAX_BYTES", 40):
                self.assertEqual(found["source.support.py"].splitlines()[:1], told()["source.support.py"].splitlines()[:1])
                self.assertLessEqual(len(told()["source.support.py"]), 40)
        with open(__file__) as file:
            lines = file.read().splitlines()
        first, *text = found["source.facts_test.py.CodeFacts"].split("\n")
        self.assertEqual(text[0], "class CodeFacts(unittest.TestCase):")
        self.assertEqual(text, lines[int(first) - 1:int(first) - 1 + len(text)])
        self.assertIn("self.assertEqual(told(), {})", found["source.facts_test.py.CodeFacts"])
        self.assertEqual(found["source.facts_test.py"], "1\n" + "\n".join(lines[:len(found["source.facts_test.py"].split("\n")) - 1]))

    def test_torchs_classes_are_its_version(self):
        self.assertEqual(dict(code_facts.Code(torch).of_class(nn.Linear)), {})

    def test_packages_and_files_are_those_that_were_imported(self):
        found = dict(code_facts.packages())
        self.assertEqual(found["package.torch"].partition("+")[0], torch.__version__.partition("+")[0])
        self.assertFalse([name for name in found if "unittest" in name])
        files = dict(code_facts.files())
        self.assertIn("code.facts_test.py", files)
        self.assertIn("code.support.py", files)
        self.assertFalse([name for name in files if "site-packages" in name])

    def test_files_are_named_from_the_folder_that_they_were_imported_from(self):
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            self.addCleanup(os.chdir, before)
            os.makedirs("v1/made_package")
            with open("v1/made_package/__init__.py", "w"):
                pass
            with mock.patch.object(sys, "path", [os.path.join(folder, "v1"), *sys.path]), mock.patch.dict(sys.modules):
                import made_package
                self.assertIn("code.made_package/__init__.py", dict(code_facts.files()), made_package.__file__)
            os.chdir(before)

    def test_files_have_the_same_names_when_the_script_is_over(self):
        before, main = dict(code_facts.files()), sys.modules["__main__"]
        script = main.__file__
        del main.__file__
        try:
            self.assertEqual(dict(code_facts.files()).keys() | {"code.facts_test.py"}, before.keys())
        finally:
            main.__file__ = script

    def test_a_package_installed_below_the_program_is_none_of_its_files(self):
        with tempfile.TemporaryDirectory(dir=os.path.dirname(__file__)) as folder:
            for name in ("made_up_package", "made_up_package-1.5.dist-info"):
                os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, "made_up_package", "__init__.py"), "w"):
                pass
            sys.path.insert(0, folder)
            try:
                importlib.import_module("made_up_package")
                found = dict(code_facts.packages()), dict(code_facts.files())
            finally:
                sys.path.remove(folder)
                sys.modules.pop("made_up_package", None)
        self.assertEqual(found[0]["package.made_up_package"], "1.5")
        self.assertFalse([name for name in found[1] if "made_up" in name])
        self.assertIn("code.support.py", found[1])


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 2)

    def forward(self, x):
        return self.net(x)


class Critic(Actor):
    pass


class Models(ObservedTest):
    def scopes(self):
        found = list(dict.fromkeys(scope for scope, _ in self.entered()))
        self.fake.messages.clear()
        return found

    def run_all(self, *models):
        for model in models:
            model(torch.ones(1, 2))
        return self.scopes()

    def test_a_second_model_goes_by_its_class(self):
        self.assertEqual(self.run_all(Actor(), Critic()), ["", "net", "Critic", "Critic.net"])

    def test_a_second_of_one_class_has_a_number(self):
        a, b, c = Actor(), Actor(), Critic()
        expected = ["", "net", "Actor#2", "Actor#2.net", "Critic", "Critic.net"]
        self.assertEqual(self.run_all(a, b, c), expected)
        self.assertEqual(self.run_all(a, b, c), expected)

    def test_parameters_go_by_their_own_model(self):
        a, b = Actor(), Actor()
        optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
        (a(torch.ones(1, 2)) + b(torch.ones(1, 2))).sum().backward()
        optimizer.step()
        self.assertEqual({t.scope for t in self.fake.tensors(phase="optimizer")}, {"net", "Actor#2.net"})

    def test_criteria_and_transforms_have_no_numbers_and_take_no_name_from_a_model(self):
        scopes = [self.run_all(nn.Tanh(), actor, nn.Tanh(), nn.Softmax(dim=1), nn.Tanh())
                  for actor in [Actor()] for _ in range(2)]
        self.assertEqual(scopes, [["", "net", "Tanh", "Softmax"], ["Tanh", "", "net", "Softmax"]])

    def test_what_contains_the_first_model_takes_its_name(self):
        actor, critic = Actor(), Critic()
        self.assertEqual(self.run_all(actor, critic), ["", "net", "Critic", "Critic.net"])
        both = nn.Sequential(actor, critic)
        self.assertEqual(self.run_all(both), ["", "0", "0.net", "1", "1.net"])
        self.assertEqual(self.run_all(actor, critic), ["0", "0.net", "1", "1.net"])

    def test_a_part_that_is_called_alone_keeps_its_name(self):
        model = nn.Sequential(Actor(), Critic())
        self.run_all(model)
        self.assertEqual(self.run_all(model[1]), ["1", "1.net"])

    def test_a_wrapper_takes_the_name_of_what_it_wraps(self):
        actor, critic = Actor(), Critic()
        expected = self.run_all(actor, critic)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):  # a new wrapper each time
                self.assertEqual(self.run_all(nn.DataParallel(actor), nn.DataParallel(critic)), expected)

    def test_each_of_many_models_of_a_class_has_its_name(self):
        actors = [Actor() for _ in range(40)]
        self.assertEqual(len(set(self.run_all(*actors))), 2 * 40)
        self.assertEqual(self.run_all(actors[0], actors[24]), ["", "net", "Actor#25", "Actor#25.net"])

    def test_names_end_at_a_limit_which_is_told_once(self):
        import copy

        model = Actor()
        with mock.patch.object(naming, "_MAX_PLACES", 20):
            for _ in range(40):
                copy.deepcopy(model)(torch.ones(1, 2))
        told, = self.fake.of("diagnostic")
        scopes = self.scopes()
        self.assertEqual(len(scopes), 20 + 2)
        self.assertIn("Actor#more.net", scopes)
        self.assertIn("CT-1305", told.text)
        self.fake.messages.clear()


if __name__ == "__main__":
    unittest.main()

"""The observer's records of module calls: names, calls, phases, values."""
import copy
import functools
import gc
import threading
import unittest
import weakref
from unittest import mock

from support import ObservedTest, qualified_names, torch
from convtrace_observer.base import contents
from convtrace_observer.calls import naming

nn = torch.nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))

    def forward(self, x, scale=None):
        x = x + self.inner(self.norm(x))
        return x if scale is None else x * scale


class Names(ObservedTest):
    def test_scopes_are_the_qualified_names_of_named_modules(self):
        model = nn.ModuleDict({"a": Block(), "b": nn.ModuleList([Block(), Block()])})
        model.forward = lambda x: model["b"][1](model["b"][0](model["a"](x)))
        model(torch.randn(2, 4))
        never_called = {"b"}  # a ModuleList has no forward
        self.assertEqual(
            [scope for scope, _ in self.entered()],
            [name for name in qualified_names(model) if name not in never_called])

    def test_a_shared_module_has_its_first_name_and_counts_calls(self):
        layer = nn.Linear(4, 4)
        model = nn.Sequential(layer, nn.ReLU(), layer)
        model(torch.randn(2, 4))
        self.assertEqual(self.entered(), [("", 0), ("0", 0), ("1", 0), ("0", 1)])

    def test_wrappers_do_not_appear(self):
        plain = nn.Sequential(nn.Linear(4, 4))
        x = torch.randn(2, 4)
        plain(x)
        unwrapped = self.entered()
        self.fake.messages.clear()
        self.observer.names.clear()  # as in a program of its own
        nn.DataParallel(copy.deepcopy(plain))(x)  # no device: calls its module directly
        self.assertEqual(self.entered(), unwrapped)

    def test_checkpoint_wrappers_do_not_appear(self):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        names = qualified_names(model)
        model[0] = checkpoint_wrapper(model[0])
        model(torch.randn(2, 4)).sum().backward()
        self.assertEqual([s for s, _ in self.entered()], names + ["0"])  # and once more in backward
        self.assertEqual([s.phase for s in self.fake.of("scope") if s.enter and s.scope == "0"],
                         ["forward", "recompute"])
        self.assertEqual(self.calls(slot="param:weight"), [("0", 0, "param:weight")])

    def test_an_attribute_named_module_of_the_user_stays_in_names(self):
        model = nn.Module()
        model.module = nn.Linear(4, 4)
        model.forward = lambda x: model.module(x)
        model(torch.randn(2, 4))
        self.assertEqual([s for s, _ in self.entered()], ["", "module"])

    def test_a_part_tried_alone_takes_its_longer_name_in_the_whole(self):
        part = nn.Sequential(nn.Linear(4, 4))
        part(torch.randn(2, 4))
        model = nn.Sequential(part, nn.ReLU())
        self.fake.messages.clear()
        model(torch.randn(2, 4))
        self.assertEqual([s for s, _ in self.entered()], ["", "0", "0.0", "1"])

    def test_a_module_attached_after_the_first_forward_is_found(self):
        model = nn.Sequential(nn.Linear(4, 4))
        model(torch.randn(2, 4))
        model.append(nn.Tanh())
        model(torch.randn(2, 4))
        self.assertIn("1", [s for s, _ in self.entered()])

    def test_a_module_outside_any_tree_is_named_by_its_class_below_its_caller(self):
        model = nn.Module()
        model.forward = lambda x: nn.ReLU()(nn.ReLU()(x))
        model(torch.randn(2, 4))
        self.assertEqual(self.entered(), [("", 0), ("ReLU", 0), ("ReLU", 1)])

    def test_cyclic_module_references_end(self):
        parent, child = nn.Module(), nn.Linear(4, 4)
        parent.child = child
        child.parent = parent
        parent.forward = lambda x: child(x)
        parent(torch.randn(2, 4))
        self.assertEqual([s for s, _ in self.entered()], ["", "child"])

    def test_dead_modules_are_forgotten(self):
        names, living = self.observer.names, nn.Sequential(nn.Linear(4, 4))
        living(torch.randn(2, 4))
        for _ in range(naming._SWEPT_FIRST):
            nn.Sequential(nn.Linear(4, 4))(torch.randn(2, 4))
        self.assertLess(len(names.entries), naming._SWEPT_FIRST + 2)
        self.assertLess(len(names.owners), naming._SWEPT_FIRST + 2)
        self.fake.messages.clear()
        living(torch.randn(2, 4))
        self.assertEqual([scope for scope, _ in self.entered()], ["", "0"])

    def test_a_module_in_the_place_of_a_dead_one_is_another(self):
        class Other(nn.Module):
            def forward(self, x):
                return x

        met = set()
        for _ in range(50):  # the allocator gives the memory of the last one to the next
            for kind in nn.Identity, Other:
                module = kind()
                met.add(id(module))
                self.fake.messages.clear()
                module(torch.randn(2, 4))
                self.assertEqual(self.observer.names.entry(module).address, id(module))
                del module
        self.assertLess(len(met), 100)

    def test_a_parameter_in_the_place_of_a_dead_one_is_not_tied_to_another(self):
        for _ in range(30):
            model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4))
            with torch.no_grad():
                model(torch.randn(2, 4))
            del model
        self.assertEqual([fact for fact in self.fake.of("event_fact") if fact.name == "tied"], [])

    def test_a_tensor_that_stands_in_for_a_parameter_is_not_tied_to_a_dead_one(self):
        class StoodIn(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(4, 4, bias=False)

            def forward(self, x):
                return functional_call(self.inner, {"weight": stand_in}, x)

        functional_call = getattr(torch, "func", None) and getattr(torch.func, "functional_call", None)
        if functional_call is None:
            self.skipTest("no functional_call in this torch")
        x, owners, others = torch.randn(2, 4), self.observer.names.owners, []
        nn.Sequential(nn.Linear(4, 4))(x)  # dies
        while len(others) < 10_000:
            stand_in = nn.Parameter(torch.zeros(4, 4))
            if id(stand_in) in owners:
                break
            others.append(stand_in)
        self.assertEqual(owners[id(stand_in)].place.name, "0")
        StoodIn()(x)
        self.assertEqual([fact for fact in self.fake.of("event_fact") if fact.name == "tied"], [])

    def test_a_module_that_gets_buffers_or_another_set_of_their_names_keeps_its_name(self):
        def renew(module):
            module._non_persistent_buffers_set = set(module._non_persistent_buffers_set)

        def register(module):
            module.register_buffer("late", torch.zeros(1), persistent=False)
            module.register_buffer("kept", torch.zeros(1))

        first, model = nn.Linear(2, 2), nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)))
        names = [module.__class__.__name__ for module in model.modules()]
        for root in first, model:
            root(torch.zeros(2, root[0].in_features if root is model else 2))
        for change in register, renew, renew, lambda module: self.observer.names.by_address():
            for module in model.modules():
                change(module)
            self.fake.messages.clear()
            model(torch.zeros(2, 4))
            self.assertEqual([scope for scope, _ in self.entered()],
                             ["Sequential", "Sequential.0", "Sequential.1", "Sequential.1.0", "Sequential.1.1"])
        self.assertEqual(len(self.observer.names.entries), 1 + len(names))

    def test_a_shallow_copy_is_another_module(self):
        first = nn.Linear(4, 4)
        second = copy.copy(first)
        second._parameters = dict(first._parameters)
        second.weight = nn.Parameter(torch.randn(4, 4))
        nn.Sequential(first, second)(torch.randn(2, 4))
        self.assertEqual([scope for scope, _ in self.entered()], ["", "0", "1"])
        names = self.observer.names
        del first, second
        names._forget_dead_modules()
        self.assertEqual(len(names.entries), 0)

    def test_weights_that_two_modules_share_are_tied(self):
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        second.weight = first.weight
        nn.Sequential(first, second)(torch.randn(2, 4))
        self.assertEqual([fact.value for fact in self.fake.of("event_fact") if fact.name == "tied"], ["weight=0.weight"])

    def test_nothing_of_ours_refers_to_a_module_or_a_parameter(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        objects = [model, *model, *model.parameters(), *model.buffers(), optimizer]
        before = [(weakref.getweakrefcount(one), len(gc.get_referrers(one)), sorted(vars(one))) for one in objects]
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        del _
        after = [(weakref.getweakrefcount(one), len(gc.get_referrers(one)), sorted(vars(one))) for one in objects]
        self.assertEqual(after, before)

    def test_a_replaced_parameter_has_the_name_of_its_place(self):
        model = nn.Sequential(nn.Linear(4, 4))
        model(torch.randn(2, 4))
        model[0].weight = nn.Parameter(torch.randn(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        self.assertEqual({slot for _, _, slot in self.calls(phase="optimizer")}, {"param:weight", "param:bias"})
        self.assertEqual({scope for scope, _, _ in self.calls(phase="optimizer")}, {"0"})


class Lit(nn.Module):
    """A module like those of Lightning, whose forward may never run."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Module()
        self.encoder.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.encoder.forward = lambda x: self.encoder.stem(x)
        self.decoder = nn.Sequential(nn.Linear(4, 4))
        self.shift = nn.Parameter(torch.zeros(4))

    def __getattribute__(self, name):
        if name in ("loud", "__class__"):
            raise AssertionError("%s was asked for" % name)
        return super().__getattribute__(name)

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, x):
        return (lambda: self.decoder(self.encoder(x)) + self.shift)()


class Trainer:
    def __init__(self, **held):
        vars(self).update(held)

    def step(self, x, *names):
        for name in names:
            x = _passed_on(getattr(self, name), x)
        return x

    def __eq__(self, other):
        raise AssertionError("compared")

    __hash__ = None


def _passed_on(module, x):
    return module(x)


def _layers(*widths):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(widths, widths[1:])))


class Holders(ObservedTest):
    """Names of modules that are called without their root."""

    LIT = ["encoder", "encoder.stem", "encoder.stem.0", "encoder.stem.1", "decoder", "decoder.0"]

    def scopes(self):
        return [scope for scope, _ in self.entered()]

    def test_they_are_those_of_the_module_whose_method_runs(self):
        model = Lit()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.training_step(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        self.assertEqual(self.scopes(), self.LIT)
        self.assertIn(("", 0, "param:shift"), self.calls(phase="optimizer"))
        self.assertIn(("decoder.0", 0, "param:weight"), self.calls(phase="forward"))  # its first values

    def test_they_are_the_same_when_the_root_was_called_first(self):
        model = Lit()
        with torch.no_grad():
            model(torch.randn(2, 4))
        self.fake.messages.clear()
        model.training_step(torch.randn(2, 4))
        self.assertEqual(self.scopes(), self.LIT)

    def test_several_models_of_an_object_go_by_its_attributes(self):
        for names in ("G", "D"), ("D", "G"):
            self.fake.messages.clear()
            self.observer.names.clear()  # as in a program of its own
            trainer = Trainer(G=_layers(4, 8, 4), D=_layers(4, 4), loss=nn.Tanh())
            trainer.step(torch.randn(2, 4), *names, "loss")
            self.assertEqual(sorted(self.scopes()), ["D", "D.0", "G", "G.0", "G.1", "Tanh"])

    def test_a_part_of_a_model_that_an_object_holds_has_the_models_names(self):
        trainer = Trainer(model=_layers(4, 4, 4))
        trainer.step(torch.randn(2, 4), "model")
        whole = self.scopes()
        self.fake.messages.clear()
        self.observer.names.clear()

        class Parts(Trainer):
            def step(self, x):
                return self.model[1](self.model[0](x))

        Parts(model=_layers(4, 4, 4)).step(torch.randn(2, 4))
        self.assertEqual([""] + self.scopes(), whole)

    def test_one_model_and_its_copies_and_models_in_a_list_are_named_by_class(self):
        model = _layers(4, 4)
        trainer = Trainer(model=model, average=copy.deepcopy(model), many=[_layers(4, 8), _layers(4, 8)])
        trainer.step(torch.randn(2, 4), "model", "average")
        trainer.many[0](torch.randn(2, 4))
        self.assertEqual(self.scopes(), ["", "0", "Sequential#2", "Sequential#2.0", "Sequential#3", "Sequential#3.0"])

    def test_two_objects_with_one_attribute_are_numbered(self):
        for _ in range(2):
            Trainer(actor=_layers(4, 4), critic=_layers(4, 1)).step(torch.randn(2, 4), "actor", "critic")
        self.assertEqual([scope for scope in self.scopes() if "." not in scope], ["actor", "critic", "actor#2", "critic#2"])

    def test_dictionaries_of_the_programs_own_are_read_without_their_code(self):
        class Loud(dict):
            def get(self, *given):
                raise AssertionError("asked")

            __contains__ = __getitem__ = __iter__ = items = values = get

        trainer = Trainer(G=_layers(4, 8, 4), D=_layers(4, 4))
        trainer.__dict__ = Loud(vars(trainer))
        trainer.G.__dict__ = Loud(vars(trainer.G))
        trainer.step(torch.randn(2, 4), "G")
        self.assertEqual(self.scopes(), ["G", "G.0", "G.1"])

    def test_a_proxy_written_in_c_is_not_asked_for_what_is_behind_it(self):
        self.assertEqual(contents.attributes(functools.partial(len)), {})  # as theirs, its __dict__ is a function of its own

    def test_looks_end_where_models_are_made_in_an_object_that_holds_many(self):
        looks, trainer = self.observer.modules._holders, Trainer(**{"m%d" % index: _layers(4, 4) for index in range(30)})
        trainer.other, looks._left = _layers(4, 4, 4), 300
        for index in range(30):
            trainer.step(torch.randn(2, 4), "m%d" % index)
        outermost = [scope for scope in self.scopes() if "." not in scope]
        self.assertIn("m1", outermost)
        self.assertNotIn("m20", outermost)
        self.assertLessEqual(looks._left, 0)

    def test_a_look_at_the_stack_keeps_no_object_alive(self):
        class Runs(Trainer):
            def step(self, x):
                passing = nn.Linear(4, 4)
                seen = weakref.ref(passing)
                known = locals()
                before = set(known)
                nn.Linear(4, 4)(x)
                del passing, known["passing"]
                return seen(), before == {*known, "passing"}

        self.assertEqual(Runs().step(torch.randn(2, 4)), (None, True))


class Slot(ObservedTest):
    def test_the_slot_names_the_running_module_and_is_restored(self):
        seen = []
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        for module in model:
            module.register_forward_hook(lambda *_: seen.append(self.fake.slot()))
            module.register_forward_pre_hook(lambda *_: seen.append(self.fake.slot()))
        model.register_forward_pre_hook(lambda *_: seen.append(self.fake.slot()))
        model(torch.randn(2, 4))
        zero, one = ("0", 0, "forward"), ("1", 0, "forward")
        self.assertEqual(seen, [("", 0, "forward"), zero, zero, one, one])
        self.assertEqual(self.fake.slot(), (None, 0, "forward"))

    def test_each_thread_has_its_own(self):
        model = nn.Linear(4, 4)
        seen = []
        model.register_forward_pre_hook(lambda *_: seen.append(self.fake.slot()))
        model(torch.randn(2, 4))
        thread = threading.Thread(target=model, args=(torch.randn(2, 4),))
        thread.start()
        thread.join()
        self.assertEqual([s for s, _, _ in seen], ["", ""])
        self.assertEqual(len(self.fake.slots), 2)

    def test_in_backward_it_is_the_module_whose_output_gradient_came_last(self):
        seen = []

        class Probe(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, g):
                seen.append(self.fake.slot())
                return g

        class Layer(nn.Linear):
            def forward(self, x):
                return super().forward(Probe.apply(x))

        nn.Sequential(Layer(4, 4), Layer(4, 4))(torch.randn(2, 4, requires_grad=True)).sum(
        ).backward()
        self.assertEqual(seen, [("1", 0, "backward"), ("0", 0, "backward")])
        self.assertEqual(self.fake.slot(), (None, 0, "forward"))


class Values(ObservedTest):
    def test_default_capture_set_of_one_training_step(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        rows = [(t.phase, t.scope, t.slot, t.capture) for t in self.fake.of("tensor")]
        stats = "stats"
        self.assertEqual(rows, [
            ("forward", "0", "param:weight", stats), ("forward", "0", "param:bias", stats),
            ("data", "", "input:0", stats),
            ("forward", "0", "input:0", "hash"), ("forward", "0", "output:0", stats),
            ("forward", "1", "input:0", "hash"), ("forward", "1", "output:0", stats),
            ("forward", "", "output:0", stats),
            ("loss", "", "loss", stats),
            ("backward", "", "grad_output:0", stats), ("backward", "1", "grad_output:0", stats),
            ("backward", "0", "needed:mat1", "hash"), ("backward", "0", "grad_output:0", stats),
            ("backward", "0", "grad:weight", stats), ("backward", "0", "grad:bias", stats),
            ("optimizer", "0", "param:weight", stats), ("optimizer", "0", "param:bias", stats)])

    def test_one_submit_per_hook(self):
        self.without_optimizers()
        model = nn.Linear(4, 4).eval()
        model(torch.randn(2, 4))
        before = self.fake.submits
        model(torch.randn(2, 4))
        self.assertEqual(self.fake.submits - before, 3)  # step, pre hook, post hook

    def test_memory_and_layout_are_the_tensors(self):
        base = torch.randn(6, 8, dtype=torch.float64)
        view = base[1:5, ::2].t()
        nn.Identity()(view)
        record, = self.fake.tensors(slot="input:0")
        self.assertEqual(record.address, view.data_ptr())
        self.assertEqual(record.shape, tuple(view.shape))
        self.assertEqual(record.strides, view.stride())
        self.assertEqual(record.base, base.data_ptr())
        self.assertEqual(record.size, base.untyped_storage().nbytes())
        self.assertEqual((record.device, record.index, record.stream), (0, 0, 0))

    def test_value_identity_follows_storage_and_version(self):
        x = torch.randn(4)
        identity = nn.Identity()
        identity(x)
        identity(x[1:])
        x.add_(1)
        identity(x)
        identity(x.clone())
        a, view, written, copy_ = self.fake.tensors(slot="input:0")
        self.assertEqual((a.storage, a.version), (view.storage, view.version))
        self.assertEqual((written.storage, written.version), (a.storage, a.version + 1))
        self.assertNotEqual(copy_.storage, a.storage)

    def test_storage_identities_are_never_used_again(self):
        identity = nn.Identity()
        for _ in range(20):
            identity(torch.zeros(1000))
        seen = [t.storage for t in self.fake.tensors(slot="input:0")]
        self.assertEqual(len(set(seen)), 20)

    def test_keyword_and_nested_inputs_and_outputs_have_slots(self):
        model = nn.Module()
        model.forward = lambda x, pair=None, mask=None: {"y": x + 1, "rest": [pair[0], (mask,)]}
        a = torch.zeros(2)
        model(a, pair=(a + 1, a + 2), mask=a + 3)
        self.assertEqual([t.slot for t in self.fake.tensors(phase="data")],
                         ["input:0", "input:pair.0", "input:pair.1", "input:mask"])
        self.assertEqual([t.slot for t in self.fake.tensors(phase="forward")],
                         ["output:0", "output:1", "output:2"])

    def test_lstm_outputs_are_numbered_in_order(self):
        nn.LSTM(3, 5)(torch.randn(2, 4, 3))
        self.assertEqual([(t.slot, t.shape) for t in self.fake.tensors(phase="forward", call=0)
                          if t.slot.startswith("output")],
                         [("output:0", (2, 4, 5)), ("output:1", (1, 4, 5)),
                          ("output:2", (1, 4, 5))])

    def test_every_dtype_is_told(self):
        from convtrace_observer.base import values

        identity = nn.Identity()
        for name, code in values._DTYPES.items():
            identity(torch.zeros(2, dtype=getattr(torch, name)))
            self.assertEqual(self.fake.tensors(slot="input:0")[-1].dtype, code, name)

    def test_unknown_dtypes_are_given_as_bytes(self):
        nn.Identity()(torch.zeros(2, 3, dtype=torch.complex32))
        record, = self.fake.tensors(slot="input:0")
        self.assertEqual((record.dtype, record.shape, record.strides), (0, (2, 3, 4), (12, 4, 1)))

    def test_what_has_no_plain_memory_is_skipped_and_counted(self):
        identity = nn.Identity()
        dense = torch.randn(3, 3)
        unreadable = [
            dense.to_sparse(), torch.empty(2, device="meta"),
            torch.nested.nested_tensor([dense, dense[:2]]),
            torch.randn(3, dtype=torch.complex64).conj(),
            torch.randn(3, dtype=torch.complex64).conj().imag,
            torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)]
        for tensor in unreadable:
            identity(tensor)
        self.assertEqual(self.fake.of("tensor"), [])
        # Each is met twice, as input and as output.
        losses = self.fake.of("loss")
        self.assertEqual({loss.reason for loss in losses}, {5})
        self.assertEqual(sum(loss.count for loss in losses), 2 * len(unreadable))

    def test_parameters_of_lazy_modules_are_left_alone_until_they_exist(self):
        nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))(torch.randn(2, 5))
        self.assertEqual(
            [(t.scope, t.slot) for t in self.fake.tensors() if t.slot.startswith("param:")],
            [("1", "param:weight"), ("1", "param:bias")])
        self.assertEqual(self.fake.of("loss"), [])

    def test_buffers_are_told_where_a_call_changed_one(self):
        class Counts(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.ones(4))
                self.register_buffer("seen", torch.zeros(1))
                self.register_buffer("cache", torch.empty(4), persistent=False)

            def forward(self, x, count):
                if count:
                    self.seen += 1
                    self.cache += 1
                return x

        model = nn.ModuleDict({"norm": nn.BatchNorm1d(4), "counts": Counts(), "sum": Counts()})

        def forward(x, replace):
            model["sum"].seen = model["sum"].seen + 1 if replace else model["sum"].seen
            return model["sum"](model["counts"](model["norm"](x), replace), False)

        model.forward = forward
        model(torch.randn(8, 4), False)
        first = [(t.scope, t.slot, t.capture) for t in self.fake.tensors() if t.slot.startswith("buffer_initial:")]
        self.assertEqual(first, [(scope, "buffer_initial:" + name, "hash") for scope, name in
                                 [("norm", "running_mean"), ("norm", "running_var"), ("norm", "num_batches_tracked"),
                                  ("counts", "table"), ("counts", "seen"), ("sum", "table"), ("sum", "seen")]])
        self.assertEqual([(t.scope, t.slot) for t in self.fake.tensors() if t.slot.startswith("buffer:")],
                         [("norm", "buffer:running_mean"), ("norm", "buffer:running_var"),
                          ("norm", "buffer:num_batches_tracked")])
        self.fake.messages.clear()
        model.eval()
        model(torch.randn(8, 4), True)
        self.assertEqual([(t.scope, t.slot) for t in self.fake.tensors() if t.slot.startswith("buffer:")],
                         [("counts", "buffer:table"), ("counts", "buffer:seen"),
                          ("sum", "buffer:table"), ("sum", "buffer:seen")])

    def test_functorch_and_fake_tensors_are_skipped(self):
        model = nn.Linear(4, 4)
        torch.func.vmap(model)(torch.randn(3, 4))
        with torch._subclasses.FakeTensorMode():
            nn.Identity()(torch.randn(3))
        self.assertEqual([t for t in self.fake.of("tensor") if "param" not in t.slot], [])

    def test_symbolic_tracing_sees_no_difference(self):
        graph = torch.fx.symbolic_trace(nn.Sequential(Block()))
        self.assertIn("call_module", [node.op for node in graph.graph.nodes])

    def test_subclasses_and_function_modes_are_not_asked(self):
        asked = []

        class Loud(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                asked.append(function)
                return super().__torch_function__(function, types, args, kwargs or {})

        class Mode(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                asked.append(function)
                return function(*args, **(kwargs or {}))

        x = torch.randn(3).as_subclass(Loud)
        y = torch.randn(3)
        asked.clear()
        identity = nn.Identity()
        with Mode():
            identity(x)
            identity(y)
        self.assertEqual(asked, [])
        self.assertEqual(len(self.fake.tensors(slot="input:0")), 2)


class LaunchesMode(ObservedTest):
    mode = "launches"

    def test_no_value_is_asked_for_but_steps_and_slots_go_on(self):
        seen = []
        model = nn.Sequential(nn.Linear(4, 4))
        model[0].register_forward_pre_hook(lambda *_: seen.append(self.fake.slot()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        self.assertEqual(self.fake.of("tensor") + self.fake.of("scope"), [])
        self.assertEqual(self.steps(), [0, 1])
        self.assertEqual(seen, [("0", 0, "forward")] * 2)

    def test_outputs_are_looked_at_once_the_program_uses_cuda(self):
        self.without_optimizers()
        model = nn.Linear(4, 4)
        model(torch.randn(2, 4))
        self.assertFalse(self.observer.follows)
        with mock.patch.object(torch.cuda, "is_initialized", lambda: True):
            model(torch.randn(2, 4))
        self.assertEqual(self.steps(), [0, 1])
        self.assertTrue(self.observer.follows)


class StepWindow(ObservedTest):
    def test_values_follow_the_answer_of_each_step(self):
        self.without_optimizers()
        model = nn.Linear(4, 4).eval()
        model(torch.randn(2, 4))
        self.fake.answer = 0
        model(torch.randn(2, 4))
        count = len(self.fake.of("tensor"))
        model(torch.randn(2, 4))
        self.assertEqual(len(self.fake.of("tensor")), count)
        self.fake.answer = 1
        model(torch.randn(2, 4))
        self.assertGreater(len(self.fake.of("tensor")), count)

    def test_off_puts_every_function_back(self):
        self.fake.answer = 4
        nn.Linear(4, 4)(torch.randn(2, 4)).sum().backward()
        for function in (nn.Module.__call__, torch.autograd.backward, torch.autograd.grad,
                         torch.autograd.Function.apply, torch._ops.OpOverload.__call__,
                         torch._ops.OpOverloadPacket.__call__, torch.amp.GradScaler.step):
            code = getattr(function, "__code__", None)  # apply has none since PyTorch 2.15: it is one of C
            self.assertNotIn("convtrace_observer", code.co_filename if code else "", function)
        self.assertIs(nn.Module.__call__, self.observer.modules._original)  # the wrapper names torch's file, too


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # what torch says about the kinds of tensors made here

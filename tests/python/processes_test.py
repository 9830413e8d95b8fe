"""Children of an observed process: forked, DataLoader workers, ranks."""
import os
import pickle
import unittest
import unittest.mock

from support import ObservedTest, qualified_names, torch

from convtrace_observer.calls import collectives, groups  # noqa: E402

nn = torch.nn


def complete(work):
    """Waits for a work by torch's own is_completed(), since a true answer of the observed one counts as a wait."""
    asked = type(work).is_completed
    asked = getattr(asked, "__wrapped__", asked)
    while not asked(work):
        pass


class Transforming(torch.utils.data.Dataset):
    """A dataset whose transform is a module, as torchvision's are."""

    def __init__(self):
        self.transform = nn.Sequential(nn.Identity())

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.transform(torch.full((2,), float(index)))


def in_child(function):
    """Runs `function` in a forked child. @return what it returned there."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(write_end, "wb") as pipe:
                pickle.dump(function(), pipe)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(data)


class Fork(ObservedTest):
    def test_a_child_starts_its_own_story(self):
        model = nn.Linear(4, 4)
        model(torch.randn(2, 4))

        def child():
            self.fake.messages.clear()
            self.fake.texts = [None]  # a new engine has an empty table
            model(torch.randn(2, 4))
            return ([m.kind for m in self.fake.messages][0], self.steps(),
                    self.calls(phase="forward"))

        first, steps, calls = in_child(child)
        self.assertEqual((first, steps), ("fact", [0]))
        self.assertEqual(calls, [("", 0, "param:weight"), ("", 0, "param:bias"),
                                 ("", 0, "output:0")])

    def test_a_child_tells_its_optimizer_and_the_updates_before(self):
        model = nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters())

        def update():
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()

        update()
        update()

        def child():
            self.fake.messages.clear()
            self.fake.texts = [None]
            update()
            return ({f.name: f.value for f in self.fake.of("fact")}["steps.updates_before"],
                    {f.name: f.value for f in self.fake.of("event_fact")}["optimizer.0.class"])

        self.assertEqual(in_child(child), ("2", "torch.optim.adamw.AdamW"))

    def test_a_child_whose_engine_is_off_is_not_observed(self):
        nn.Linear(4, 4)(torch.randn(2, 4))

        def child():
            self.fake.messages.clear()
            self.fake.convtrace_start = lambda: 0
            nn.Linear(4, 4)(torch.randn(2, 4))
            return len(self.fake.messages), self.observer.active

        self.assertEqual(in_child(child), (0, False))

    def test_loader_workers_are_not_observed(self):
        loader = torch.utils.data.DataLoader(Transforming(), batch_size=2, num_workers=1,
                                             collate_fn=self.collate)
        self.assertEqual([active for _, active in loader], [False, False])
        self.assertTrue(self.observer.active)

    def collate(self, items):
        return torch.stack(items), self.observer.active


class Ranks(ObservedTest):
    def test_ddp_names_and_values_are_those_of_the_plain_model(self):
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        model = nn.parallel.DistributedDataParallel(plain)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        self.assertEqual([s for s, _ in self.entered()], qualified_names(plain))
        self.assertEqual(self.calls(slot="grad:weight"), [("0", 0, "grad:weight")])
        facts = {f.name: f.value for f in self.fake.of("fact")}
        self.assertEqual((facts["distributed.rank"], facts["distributed.world_size"]), ("0", "1"))


class Collectives(ObservedTest):
    """Collectives in a group of one process; collectives_test.py has those of several."""

    def setUp(self):
        super().setUp()
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        torch.distributed.barrier()  # facts are told before the first call
        self.fake.messages.clear()

    def messages(self):
        """@return the messages except those about tensors used before the wait (flights_test)."""
        return [(m.kind, getattr(m, "slot", None)) for m in self.fake.messages if m.kind != "flight"]

    def test_what_is_sent_follows_the_call_and_what_is_received_its_wait(self):
        x = torch.ones(3)
        work = torch.distributed.all_reduce(x, async_op=True)
        self.assertEqual(self.messages(), [("collective", None), ("tensor", "sent:0")])
        work.wait()
        self.assertEqual(self.messages()[2:], [("collective_values", None), ("tensor", "received:0")])
        call, _, values, received = (m for m in self.fake.messages if m.kind != "flight")
        self.assertEqual((call.op, call.reduction, call.members, call.sent, call.received), ("all_reduce", "sum", "0", 3, 3))
        self.assertEqual((values.id, values.step, received.address, received.storage), (call.id, 0, x.data_ptr(), 0))

    def test_a_result_that_was_overwritten_out_of_sight_is_counted(self):
        x = torch.ones(3)
        work = torch.distributed.all_reduce(x, async_op=True)
        complete(work)
        x.add_(1)
        torch.distributed.barrier()
        self.assertEqual(self.messages()[2:], [("loss", None), ("collective", None)])

    def test_a_result_that_is_complete_is_read_before_the_next_call(self):
        x = torch.ones(3)
        work = torch.distributed.all_reduce(x, async_op=True)
        complete(work)
        torch.distributed.barrier()
        self.assertEqual(self.messages()[2:], [("collective_values", None), ("tensor", "received:0"), ("collective", None)])

    def test_borrowed_memory_is_read_at_a_wait_alone(self):
        for waits in (True, False):
            self.fake.messages.clear()
            x = torch.frombuffer(bytearray(12), dtype=torch.float32)
            work = torch.distributed.all_reduce(x, async_op=True)
            complete(work)
            if waits:
                work.wait()
            torch.distributed.barrier()
            self.assertEqual(self.messages()[2][0], "collective_values" if waits else "loss")

    def test_calls_that_never_tell_that_they_are_complete_are_given_up(self):
        class Work:
            def is_completed(self):
                return False

            def get_future(self):
                raise RuntimeError

        calls = self.observer.collectives
        calls._unbox_work = lambda boxed: boxed
        works = [Work() for _ in range(300)]
        for work in works:
            calls.follow((collectives._Pending(1, 0, (0, 0, 0, 0), [], [], [], False), None), work)
        self.assertEqual(len(calls._pending), 256)
        self.observer.step = 3
        calls.read_complete()
        self.assertEqual(len(calls._pending), 0)

    def test_without_values_the_call_alone(self):
        self.fake.answer = 0
        nn.Linear(1, 1)(torch.ones(1))  # a step begins
        self.fake.messages.clear()
        torch.distributed.all_reduce(torch.ones(3))
        self.assertEqual(self.messages(), [("collective", None)])

    def test_errors_are_the_programs_own(self):
        def error_of(call):
            with self.assertRaises(Exception) as raised:
                call()
            return type(raised.exception), str(raised.exception).splitlines()[0]

        wrong = (lambda: torch.distributed.all_reduce(torch.ones(3), op=torch.distributed.ReduceOp.PREMUL_SUM),
                 lambda: torch.distributed.scatter(torch.ones(3), [torch.ones(2)]),
                 lambda: torch.distributed.all_gather_into_tensor(torch.ones(3), torch.ones(2)))
        observed = [error_of(call) for call in wrong]
        self.observer.remove()
        self.assertEqual(observed, [error_of(call) for call in wrong])

    def test_removed_nothing_is_recorded(self):
        self.observer.remove()
        torch.distributed.all_reduce(torch.ones(3))
        self.assertEqual(self.messages(), [])


class Transfers(unittest.TestCase):
    """The counts of a group's calls."""

    def setUp(self):
        self.send, self.recv = collectives._OPS["send"], collectives._OPS["recv_"]
        self.group = groups.Group(1, 0, 4, True)

    def from_any(self, tag=3):
        return groups.FromAny(self.group, self.recv, tag, (), ())

    def test_by_peer_and_tag_and_apart_from_collectives(self):
        self.assertEqual([self.group.number(op, peer, tag) for op, peer, tag in [
            (self.send, 1, 3), (self.send, 1, 4), (self.recv, 1, 3), (self.send, 2, 3), (self.send, 1, 3),
            (collectives._OPS["barrier"], 0, 0), (collectives._OPS["barrier"], 0, 0)]], [0, 0, 0, 0, 1, 0, 1])

    def test_of_what_was_used_longest_ago_the_count_is_dropped(self):
        with unittest.mock.patch.object(groups, "_MOST_TAGS", 2):
            self.assertEqual([self.group.number(self.send, 1, tag) for tag in (3, 4, 3, 5, 3, 4)], [0, 0, 1, 0, 2, 0])

    def test_a_reception_from_any_source_has_the_source_that_its_backend_tells(self):
        one = self.from_any()
        self.assertEqual(one.source_of(unittest.mock.Mock(_source_rank=lambda: 2)), 2)
        self.assertEqual(one.source_of(unittest.mock.Mock(_source_rank=lambda: -1)), groups.NO_PEER)
        self.assertEqual(one.source_of(object()), groups.NO_PEER)
        self.assertEqual((one.number(2), self.from_any().number(2), self.group.number(self.recv, 2, 3)), (0, 1, 2))

    def test_and_none_where_a_later_one_of_it_was_counted(self):
        one, work = self.from_any(), unittest.mock.Mock(_source_rank=lambda: 2)
        self.group.number(self.recv, 1, 3)
        self.group.number(self.recv, 2, 4)
        self.assertEqual(one.source_of(work), 2)
        self.group.number(self.recv, 2, 3)
        self.assertEqual(one.source_of(work), groups.NO_PEER)

    def test_what_comes_behind_an_earlier_one_of_the_same_tag(self):
        one, other, two = self.from_any(), self.from_any(4), self.from_any()
        self.assertTrue(two.comes_behind(one))
        self.assertFalse(any(two.comes_behind(late) for late in (None, other, self.from_any())))


if __name__ == "__main__":
    unittest.main()

"""Children of an observed process: forked, DataLoader workers, ranks."""
import os
import pickle
import unittest

from support import ObservedTest, qualified_names, torch

nn = torch.nn


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


if __name__ == "__main__":
    unittest.main()

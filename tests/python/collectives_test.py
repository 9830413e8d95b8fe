"""Collectives of real processes over gloo: each is recorded once, whoever calls it, with what it sent and what
it received when it was complete; and nothing about the program changes. Needs CONVTRACE_BUILD."""
import collections
import os
import subprocess
import sys
import unittest

from preload_test import BUILD, ProgramTest
from short_run import long

sys.path.insert(0, os.path.join(BUILD, "share", "convtrace", "python"))
import convtrace  # noqa: E402


def ranks_of(text):
    """@return the ranks of a text: [0, 1, 2, 8] for "0-2,8"."""
    ranges = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return [rank for part in ranges for rank in range(part[0], part[-1] + 1)]


class CollectivesTest(ProgramTest):
    shared = True

    def trace(self, way, size):
        """Runs the program without and with convtrace. @return the records of each rank."""
        for trace in self.traces():
            os.remove(trace)
        plain = self.run_program("collectives.py", way, str(size), preload=False)
        traced = self.run_program("collectives.py", way, str(size))
        self.assertEqual((plain.returncode, traced.returncode), (0, 0), traced.stderr)
        self.assertEqual((plain.stdout, plain.stderr), (traced.stdout, traced.stderr))
        self.assertEqual(len(self.traces()), size)
        for trace in self.traces():
            self.check_clean(trace)
        return [self.records(trace) for trace in self.traces()]

    def calls(self, records, *ops):
        return [r for r in records if r["record"] == "collective" and (not ops or r["op"] in ops)]

    def values(self, records, call, kind):
        return [r for r in records if r["record"] == "stats" and r.get("collective") == call["id"] and r["slot"].startswith(kind)]

    def check_joined(self, ranks):
        """Calls of a group agree among its members and are numbered without gaps; received values equal those sent."""
        groups = collections.defaultdict(dict)
        for rank, records in enumerate(ranks):
            self.assertEqual([c["id"] for c in self.calls(records)], list(range(1, len(self.calls(records)) + 1)))
            for call in self.calls(records):
                self.assertEqual(call["rank"], ranks_of(call["members"])[call["group_rank"]])
                self.assertEqual(call["group_size"], len(ranks_of(call["members"])))
                where = call["number"]
                if call["op"] in ("send", "recv"):
                    ends = (call["group_rank"], call["peer"])
                    where = (*(ends if call["op"] == "send" else ends[::-1]), call["tag"], where)
                self.assertNotIn(rank, groups[call["group"]].setdefault(where, {}))
                groups[call["group"]][where][rank] = call
        for calls in groups.values():
            numbers = [number for number in calls if isinstance(number, int)]
            self.assertEqual(sorted(numbers), list(range(len(numbers))))
            for where, members in calls.items():
                first = next(iter(members.values()))
                if isinstance(where, tuple):
                    self.assertEqual(sorted(call["op"] for call in members.values()), ["recv", "send"])
                else:
                    self.assertEqual(list(members), ranks_of(first["members"]))
                    for key in ("op", "reduction", "peer", "dtype", "members"):
                        self.assertEqual({call[key] for call in members.values()}, {first[key]}, first)
                self.check_values(ranks, members)

    def check_values(self, ranks, members):
        sent, received = ({rank: [v["hash"] for v in self.values(ranks[rank], call, kind)] for rank, call in members.items()}
                          for kind in ("sent:", "received:"))
        first = next(iter(members.values()))
        root = None if first["peer"] is None else ranks_of(first["members"])[first["peer"]]
        for rank, call in members.items():
            self.assertEqual(sum(v["count"] for v in self.values(ranks[rank], call, "sent:")), call["sent"], call)
            self.assertEqual(sum(v["count"] for v in self.values(ranks[rank], call, "received:")), call["received"], call)
        if first["op"] in ("all_reduce", "all_gather", "broadcast"):
            self.assertEqual(len({tuple(hashes) for hashes in received.values()}), 1, first)
        if first["op"] == "broadcast":
            self.assertEqual(received[root], sent[root])
            self.assertEqual([rank for rank in sent if sent[rank]], [root])
        if first["op"] in ("reduce", "gather"):
            self.assertEqual([rank for rank in received if received[rank]], [root])
        if first["op"] == "send" or first["op"] == "recv":
            self.assertEqual(*(hashes for side in (sent, received) for hashes in side.values() if hashes))
        if first["op"] == "all_gather" and len(received[first["rank"]]) == len(members):
            self.assertEqual(received[first["rank"]], [hashes[0] for hashes in sent.values()])


class EachCall(CollectivesTest):
    def test_of_torch_distributed(self):
        ranks = self.trace("calls", 3)
        self.check_joined(ranks)
        ops = [(c["op"], c["reduction"], c["peer"]) for c in self.calls(ranks[0])]
        self.assertEqual(ops[:13], [
            ("all_reduce", "sum", None), ("all_reduce", "max", None), ("all_reduce", "product", None), ("broadcast", None, 1),
            ("reduce", "sum", 0), ("all_gather", None, None), ("all_gather", None, None), ("reduce_scatter", "sum", None),
            ("reduce_scatter", "sum", None), ("gather", None, 0), ("scatter", None, 1), ("all_to_all", None, None), ("send", None, 1)])
        pair = {c["group"]: c["members"] for c in self.calls(ranks[2])}
        self.assertEqual(sorted(pair.values()), ["0,2", "0-2"])
        self.assertEqual(sum(c["op"] == "barrier" for c in self.calls(ranks[0])), 2)

    @long("processes_test Collectives; flights_test BeforeTheWait")
    def test_whose_results_the_program_overwrites_behind_the_wait(self):
        ranks = self.trace("async", 2)
        self.check_joined(ranks)
        for records in ranks:
            calls = self.calls(records, "all_reduce")
            self.assertEqual([self.values(records, c, "sent:")[0]["mean"] for c in calls[:4]],
                             [float(records[-1]["rank"] + i) for i in range(4)])
            self.assertEqual([self.values(records, c, "received:")[0]["mean"] for c in calls[:4]], [1.0 + 2 * i for i in range(4)])
            self.assertEqual([v["mean"] for v in self.values(records, calls[4], "received:")], [1.0] * 4)

    def test_of_functional_collectives_also_in_compiled_code(self):
        ranks = self.trace("functional", 2)
        self.check_joined(ranks)
        means = [self.values(ranks[0], c, "received:")[0]["mean"] for c in self.calls(ranks[0], "all_reduce")]
        self.assertEqual(means, [3.0, 6.0])

    @long("test_of_torch_distributed; tags and sources: processes_test Transfers")
    def test_with_tags_and_from_any_source(self):
        ranks = self.trace("tags", 3)
        self.check_joined(ranks)
        self.assertEqual([(c["tag"], c["number"], c["peer"]) for c in self.calls(ranks[1], "recv")],
                         [(7, 0, 0), (4, 0, 0), (7, 1, 0), (4, 1, 0), (7, 2, 0), (4, 2, 0)])
        self.assertEqual(sorted((c["peer"], c["tag"], c["number"]) for c in self.calls(ranks[0], "recv")),
                         [(1, 3, 0), (1, 3, 1), (2, 3, 0), (2, 3, 1)])
        self.assertEqual({c["tag"] for c in self.calls(ranks[0], "barrier")}, {None})
        self.assertEqual([(c["tag"], c["number"]) for c in self.calls(convtrace.Trace(self.traces()[1]), "recv")],
                         [(c["tag"], c["number"]) for c in self.calls(ranks[1], "recv")])
        done = subprocess.run([os.path.join(BUILD, "bin", "convtrace"), "origin", *self.traces()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("10 transfers", done.stdout)
        self.assertNotIn("note", done.stdout)

    @long("processes_test Transfers, test_and_none_where_a_later_one_of_it_was_counted")
    def test_from_any_source_where_it_is_not_known_which_message_a_call_has(self):
        ranks = self.trace("from-any", 3)
        second, first = self.calls(ranks[0], "recv")
        self.assertEqual((second["peer"], second["number"]), (None, 0))
        self.assertIn(first["peer"], (1, 2))
        self.assertEqual(sorted(self.values(ranks[0], call, "received:")[0]["mean"] for call in (first, second)), [1.0, 2.0])

    def test_in_steps_without_values(self):
        done = self.run_program("collectives.py", "ddp", "2", CONVTRACE_STEPS="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        for trace in self.traces():
            records = self.records(trace)
            reduced = self.calls(records, "all_reduce")
            self.assertEqual([c["step"] for c in reduced], [0, 1, 2])
            self.assertEqual([len(self.values(records, c, "received:")) for c in reduced], [0, 1, 0])


class Frameworks(CollectivesTest):
    def check_reducer(self, way):
        ranks = self.trace(way, 2)
        self.check_joined(ranks)
        buckets = self.calls(ranks[1], "all_reduce")
        self.assertEqual([(c["step"], c["phase"]) for c in buckets], [(step, "backward") for step in range(3)])

    def test_ddps_reducer_is_c_plus_plus(self):
        self.check_reducer("ddp")

    @long("test_ddps_reducer_is_c_plus_plus")
    def test_ddps_reducer_whose_buckets_are_the_gradients(self):
        self.check_reducer("ddp-bucket-view")

    def test_fully_shard(self):
        ranks = self.trace("fully_shard", 2)
        self.check_joined(ranks)
        self.assertGreaterEqual(len(self.calls(ranks[0], "reduce_scatter")), 3)
        self.assertGreaterEqual(len(self.calls(ranks[0], "all_gather")), 3)
        placed = [{f["scope"] + "." + f["name"]: f["value"] for f in records if f["record"] == "fact" and f["name"].startswith("placement.")}
                  for records in ranks]
        self.assertEqual(len(placed[0]), 8)
        self.assertEqual([one["0.0.placement.weight"] for one in placed], [
            "shape=(8, 4), mesh=(%s=2), at=(%d,), placements=(Shard(dim=0),), local=(4, 4), offset=(%d, 0)" % (mesh, rank, 4 * rank)
            for rank, mesh in enumerate(["0"] * 2)])


class MoreFrameworks(CollectivesTest):
    def test_tensor_parallel(self):
        for size in (2, 4):
            with self.subTest(ranks=size):
                ranks = self.trace("tensor", size)
                self.check_joined(ranks)
                self.assertEqual({c["scope"] for c in self.calls(ranks[0], "all_reduce") if c["phase"] == "forward"}, {"2"})
                for records in ranks:
                    self.check_row_parallel(records)

    def check_row_parallel(self, records):
        """A layer that returns before the wait for its collective is recorded with the collective's result."""
        reduced = [self.values(records, c, "received:")[0]["hash"] for c in self.calls(records, "all_reduce") if c["scope"] == "2"]
        for scope in ("2", ""):
            returned = [r for r in records if r["record"] == "stats" and (r["scope"], r["slot"]) == (scope, "output:0")]
            self.assertEqual([r["hash"] for r in returned], reduced)
            self.assertEqual([(r["step"], r["phase"]) for r in returned], [(step, "forward") for step in range(3)])
        gradients = [r for r in records if r["record"] == "stats" and r["slot"] == "grad_output:0"]
        self.assertEqual([r["scope"] for r in gradients], ["", "2", "1", "0"] * 3)
        self.assertEqual([r for r in records if r["record"] == "loss"], [])

    def test_pipeline(self):
        ranks = self.trace("pipeline", 4)
        self.check_joined(ranks)
        self.assertEqual([(c["op"], c["peer"], c["number"]) for c in self.calls(ranks[1], "send", "recv")],
                         [("recv", 0, 0), ("send", 2, 0), ("recv", 2, 0), ("send", 0, 0),
                          ("recv", 0, 1), ("send", 2, 1), ("recv", 2, 1), ("send", 0, 1)])

    def test_experts(self):
        ranks = self.trace("experts", 2)
        self.check_joined(ranks)
        self.assertEqual([c["phase"] for c in self.calls(ranks[0], "all_to_all")], ["forward", "forward", "backward", "backward"])


if __name__ == "__main__":
    unittest.main()

"""Collectives of NCCL: each once, with what was in the buffers at its place in the stream."""
from ..bench import expect
from ..check import check

FIRST_ID = 2 ** 32  # of calls that the preload library records


@check("NCCL's functions", part=8)
def functions(bench):
    """Every function, through ctypes, with one rank: its event, and the values that input and output had then."""
    command = bench.without_torch("nccl")
    plain = bench.result(bench.run(command))
    done, trace = bench.traced(command)
    traced = bench.result(done)
    bench.expect_same(plain, traced, lambda: bench.result(bench.run(command)))
    calls = trace.records("collective")
    expect([one["op"] for one in calls] == [one["op"] for one in traced["calls"]], "the calls are %s" % [one["op"] for one in calls])
    values = {(one.get("collective"), one["slot"]): one for one in trace.records("stats")}
    computed = 0
    for call, wanted in zip(calls, traced["calls"]):
        expect(call["id"] >= FIRST_ID and call["group"].startswith("nccl:"), "the event is %s" % call)
        for slot, count in ("sent:0", call["sent"]), ("received:0", call["received"]):
            value = values.pop((call["id"], slot), None)
            if count == 0 or wanted["value"] is None:
                expect(value is None, "%s of %s has a value" % (slot, call))
                continue
            if value is None:
                continue  # counted below
            computed += 1
            expect((value["min"], value["max"], value["count"]) == (wanted["value"], wanted["value"], count),
                   "%s of %s is %s to %s, not %s" % (slot, call["op"], value["min"], value["max"], wanted["value"]))
    lost = trace.info["lost"]
    bench.note({"calls": len(calls), "values": computed, **{"lost: " + why: count for why, count in lost.items()}})
    expect(not values, "values of no call: %s" % list(values))
    # A call while a stream is captured has two values that cannot be taken.
    expect(lost == {"stream not safe to use": 2}, "lost: %s" % lost)


@check("NCCL under PyTorch", part=8)
def under_pytorch(bench):
    """A training step of DDP: each collective is recorded once, by the preload library where NCCL makes it."""
    command = bench.workload("models", "--model", "distributed")
    done, trace = bench.traced(command)
    bench.result(done)
    calls = trace.records("collective")
    on_cuda = [one for one in calls if one["device"].startswith("cuda")]
    with_values = {one["collective"] for one in trace.records("stats") if "collective" in one}
    bench.note({"calls": len(calls), "on_cuda": len(on_cuda), "with_values": len(with_values)})
    expect(calls, "no collective was recorded")
    expect(all((one["id"] >= FIRST_ID) == one["group"].startswith("nccl:") for one in calls), "an id is not of its kind")
    if bench.device == "cuda":
        expect(on_cuda, "no collective of NCCL was recorded")
        twice = [one for one in on_cuda if one["id"] < FIRST_ID]
        expect(not twice, "a collective of NCCL was recorded by the observer, too: %s" % twice[:1])
        expect(with_values, "no collective has a value")

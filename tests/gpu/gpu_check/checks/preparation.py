"""The cost of preparing a context; the program's first launches must not wait for it."""
from ..bench import expect
from ..check import check
from .ways import OUTPUT_RULE


@check("preparation beside a busy device", part=3, alone=True)
def preparation(bench):
    """Half a second of a kernel in one stream, launches in another: none of them waits for the device."""
    command = bench.native(bench.tree.preparation)
    plain = bench.program(bench.run(command))
    done, trace = bench.traced(command, rules=OUTPUT_RULE)
    traced = bench.program(done)
    launches = trace.records("launch")
    unready = sum(r.get("why") == "context not prepared yet" for r in launches)
    values = trace.info["records"].get("stats", 0)
    longest, longest_plain = traced["longest_launch_ms"], plain["longest_launch_ms"]
    bench.note({"memory_bytes": plain["free_bytes"] - traced["free_bytes"], "longest_launch_ms": longest,
                "longest_launch_plain_ms": longest_plain, "launches_before_it_was_ready": unready, "values": values})
    expect(len(launches) == traced["launches"], "%d launches, %d in the trace" % (traced["launches"], len(launches)))
    # There is a launch a millisecond: so many milliseconds passed before values came.
    expect(values > 0, "the context was not ready within %d launches" % len(launches))
    bench.judge("the longest launch beside a kernel of 500 ms, in ms", longest, longest_plain + 100)


@check("memory beside a training step", part=3, alone=True)
def memory_beside_training(bench):
    """Measures the device memory that a traced training takes more than a plain one. The results must be the same."""
    command = bench.workload("models", "--model", "gpt")
    plain, traced = (bench.result(done) for done in (bench.run(command), bench.traced(command)[0]))
    expect(plain["digest"] == traced["digest"], "the results are other ones under convtrace")
    return {"memory_bytes": plain["free_bytes"] - traced["free_bytes"]}

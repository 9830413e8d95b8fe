"""Programs in trouble end as they would without convtrace, and their traces can be read."""
import concurrent.futures
import signal

from ..bench import NO_DEVICE, Failure, Skip, Trace, expect
from ..check import check
from .ways import OUTPUT_RULE


def same_end(bench, case, timeout=120):
    """Runs a troubled program plain and traced: exit code, stdout and its last words must agree."""
    command = bench.workload("troubled", "--case", case)
    plain = bench.run(command, timeout)
    if plain.code == NO_DEVICE:
        bench.succeeded(plain)
    traced, trace = bench.traced(command, timeout=timeout)
    expect(plain.code == traced.code, "exit code %d, without convtrace %d: %s" % (traced.code, plain.code, traced.err[-300:]))
    expect(plain.out == traced.out, "stdout is another one")
    return plain, traced, trace


@check("interrupt", part=10)
def interrupt(bench):
    plain, traced, trace = same_end(bench, "interrupted")
    expect(plain.code in (-signal.SIGINT, 1, 130), "the program was not interrupted (%d)" % plain.code)
    info = trace.check_clean()
    return {"state": info["state"], "steps": info["steps"][1]}


@check("fork in a DataLoader", part=10)
def fork_in_loader(bench):
    _, _, trace = same_end(bench, "fork_in_loader")
    trace.check_clean()
    others = [path.name for path in bench.folder.glob("*.ctrace") if path != trace.path]
    expect(not others, "workers wrote traces: %s" % others)


@check("two processes", part=10)
def two_processes(bench):
    """Two traced programs at once."""
    def one(number):
        return bench.traced(bench.workload("troubled", "--case", "train"), "process%d" % number)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        ended = list(pool.map(one, range(2)))
    for done, trace in ended:
        bench.result(done)
        trace.check_clean()


ENDS = ("sys_exit", "os_exit", "raised", "raised_in_forward")


def end_check(case):
    def check(bench):
        plain, _, trace = same_end(bench, case)
        info = trace.info
        expect(info["state"] == "complete", "the trace is %s" % info["state"])
        return {"exit_code": plain.code, "launches": info["records"].get("launch", 0)}
    return check


for _case in ENDS:
    check("end: " + _case, part=10)(end_check(_case))


@check("out of memory", part=10, alone=True)
def out_of_memory(bench):
    """The program runs out of memory and goes on; what convtrace then cannot do, it says in the trace."""
    _, _, trace = same_end(bench, "out_of_memory")
    info = trace.info
    expect(info["state"] == "complete", "the trace is %s" % info["state"])
    expect(not trace.findings, "a finding in a correct program: %s" % trace.findings[:1])
    said = [r.get("message", "") for r in trace.records("diagnostic") if r["level"] != "info"]
    return {"allocations": info["records"]["alloc"], "said": "; ".join(said)[:200]}


@check("sticky error", part=10)
def sticky_error(bench):
    """An assertion in a kernel: every later call fails, and PyTorch says so."""
    plain, _, trace = same_end(bench, "sticky_error")
    expect("error:" in plain.out, "the program had no error")
    info = trace.info
    expect(info["state"] == "complete" or plain.code < 0, "the trace is %s" % info["state"])
    return {"launches": info["records"]["launch"], "lost": sum(info["lost"].values())}


@check("illegal address", part=1)
def illegal_address(bench):
    """A kernel that writes where nothing is: the program ends with the driver's error, and its launches are in the trace."""
    command = bench.native(bench.tree.launches, "--launches", "1000", "--fault")
    knob = {"FAKECUDA_STICKY_AT_LAUNCH": "1001"} if bench.is_fake else {}
    plain = bench.run(command, **knob)
    expect(plain.code == 1, "the program ended with %d: %s" % (plain.code, plain.err[-300:]))
    done, trace = bench.traced(command, environment=knob)
    expect((done.code, done.out) == (plain.code, plain.out), "ended with %d" % done.code)
    expect(plain.err.strip() in done.err, "the program said %s, under convtrace %s" % (plain.err[-200:], done.err[-200:]))
    info = trace.info
    expect(info["state"] == "complete", "the trace is %s" % info["state"])
    expect(info["records"]["launch"] >= 1000, "%d of 1000 launches" % info["records"]["launch"])
    return {"said": plain.err.strip()}


@check("kill -9", part=10)
def kill(bench):
    """The steps that ended before a kill are in the trace."""
    try:
        bench.traced(bench.workload("troubled", "--case", "endless"), "killed", timeout=30)
    except Failure:
        pass  # killed at the limit: that is the point
    path = bench.folder / "killed.ctrace"
    if not path.exists():
        raise Skip("the program was too slow to begin")
    info = Trace(bench, path).info
    expect(info["state"] == "unclosed", "the trace is %s" % info["state"])
    return {"steps": info["steps"][1]}


@check("a million launches from one thread", part=10)
def million(bench):
    return launch_under_load(bench, "1", "1000000" if not bench.is_fake else "2000")


@check("a million launches from 16 threads", part=10)
def million_of_threads(bench):
    return launch_under_load(bench, "16", "62500" if not bench.is_fake else "500")


def launch_under_load(bench, threads, launches):
    """Statistics behind each launch: does it hang, does it lose launches without counting them?"""
    command = bench.native(bench.tree.launches, "--threads", threads, "--launches", launches,
                           "--pause", "2000" if not bench.is_fake else "300")
    done, trace = bench.traced(command, timeout=600, rules=OUTPUT_RULE)
    said, info = bench.program(done), trace.info
    numbers = {"values": info["records"]["stats"], "lost": sum(info["lost"].values())}
    expect(info["records"]["launch"] + numbers["lost"] >= said["launches"], "launches are missing")
    expect(numbers["values"] > 0, "no values came out")
    return numbers

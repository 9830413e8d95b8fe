"""convtrace-diff of runs on the GPU: two that are equal, and one in which somebody wrote to a parameter."""
import json

from ..bench import expect
from ..check import check

FAULT = (1, "blocks.1.mlp.0")  # step and module that gpt_faulty writes to before


def compare(bench, mode, base, candidate):
    """@return (exit code of convtrace-diff, its report)."""
    path = bench.folder / "diff.json"
    path.unlink(missing_ok=True)
    done = bench.run([bench.tree.diff, base.path, candidate.path, "--exact", "on", "--json", path])
    expect(path.exists(), "convtrace-diff ended with %d: %s" % (done.code, (done.err or done.out).strip()[-300:]))
    bench.leave("diff/%s-%s.json" % (mode, candidate.path.stem), path.read_text())
    return done.code, json.loads(path.read_text())


def comparing(mode, **settings):
    def check(bench):
        traces = {}
        for name, model in (("base", "gpt"), ("again", "gpt"), ("faulty", "gpt_faulty")):
            done, traces[name] = bench.traced(bench.workload("models", "--model", model), name=name, mode=mode, **settings)
            bench.result(done)
            info = traces[name].check_clean()
            stored = info["sizes"].get("values", {"records": 0})["records"]
            bench.note({name + "_values": info["records"].get("stats", 0), name + "_stored": stored})
            expect((stored > 0) == (mode == "snapshot"), "%d values were stored" % stored)
        code, report = compare(bench, mode, traces["base"], traces["again"])
        same, values = report["counts"]["identical"], report["compared"]["values"]
        expect(code == 0 and same == values > 0, "two equal runs: exit code %d, %d of %d values are identical" % (code, same, values))
        code, report = compare(bench, mode, traces["base"], traces["faulty"])
        root = report["root"] or {}
        expect(code == 1 and (root.get("step"), root.get("scope")) == FAULT, "a parameter that was written to: exit code %d, root %s" % (
            code, {key: root.get(key) for key in ("step", "scope", "slot")}))
        return {"compared": values, "root": "%s of %s" % (root["slot"], root["scope"])}
    return check


for _mode, _settings in ("stats", {}), ("snapshot", {"all": 1}), ("hash", {}):
    check("two runs compared: " + _mode, part=2)(comparing(_mode, **_settings))

"""The program of `convtrace demo`: trains the small GPT of train.py twice under the preload, once with a correct custom op
and once with one that returns freed memory, then runs convtrace-diff to find where the runs diverge.

usage: demo.py DIR     leaves traces, losses and reports in DIR; succeeds when the verdict names the op
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[2]
TRAIN = HERE / "train.py"


def say(text):
    print("\n== " + text, flush=True)


def die(text):
    sys.exit("\ndemo: " + text)


def train(op, *options, **settings):
    """Starts the script. Returns the process, whose stdout has the losses."""
    return subprocess.Popen([sys.executable, str(TRAIN), "--op", op, *options], env={**os.environ, **settings},
                            stdout=subprocess.PIPE, text=True)


def compile_op():
    say("Compiling the custom op, correct and with the bug: most of a minute, once")
    begun = time.monotonic()
    for process in [train(op, "--steps", "0") for op in ("correct", "reuse")]:
        while True:
            try:
                print(process.communicate(timeout=10)[0], end="")
                break
            except subprocess.TimeoutExpired:
                print("compiling, %d s" % (time.monotonic() - begun), flush=True)
        if process.returncode:
            die("the script does not run here: %s is to have PyTorch" % sys.executable)


def traced_run(out, name, op):
    """@return the loss of each step, as text."""
    settings = {"LD_PRELOAD": str(TREE / "lib" / "libconvtrace.so"), "CONVTRACE_OUTPUT": str(out / (name + ".ctrace"))}
    say(shlex.join([*map("=".join, settings.items()), "python", str(TRAIN), "--op", op]))
    process = train(op, CONVTRACE_OVERWRITE="1", **settings)
    losses = []
    for line in process.stdout:
        _, step, _, loss = line.split()
        losses.append(loss)
        if int(step) % 5 == 0:
            print(line, end="", flush=True)
    if process.wait() or not (out / (name + ".ctrace")).exists():
        die("the run failed or left no trace")
    return losses


def program(name, *arguments, **options):
    return subprocess.run([str(TREE / "bin" / name), *map(str, arguments)], **options)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    ops = out / "ops"
    for lock in ops.glob("*/lock"):  # of a compilation that was killed: PyTorch would wait for it for ever
        lock.unlink()
    os.environ["TORCH_EXTENSIONS_DIR"] = str(ops.resolve())
    compile_op()
    base, candidate = traced_run(out, "base", "correct"), traced_run(out, "candidate", "reuse")

    say("The same script, seed and data: the losses part, and nothing crashed")
    for step in range(0, len(base), 5):
        differs = "  differs" if base[step] != candidate[step] else ""
        print("step %3d  base %-12s candidate %-12s%s" % (step, base[step], candidate[step], differs))
    if base == candidate:
        die("both runs gave the same losses: the bug did not strike")

    traces = [out / "base.ctrace", out / "candidate.ctrace"]
    say(shlex.join(["convtrace-diff", *map(str, traces)]))
    diff = program("convtrace-diff", *traces, "--json", out / "diff.json", "--html", out / "diff.html")

    say("convtrace findings %s" % traces[1])
    findings = program("convtrace", "findings", traces[1], stdout=subprocess.PIPE, text=True).stdout
    (out / "findings.txt").write_text(findings)
    print(next((part for part in findings.split("\n\n") if part.startswith("error")), ""))

    if diff.returncode != 1:
        die("convtrace-diff ended with %d, not with 1 (diverged)" % diff.returncode)
    if "bias_relu" not in (json.loads((out / "diff.json").read_text())["root"]["op"] or ""):
        die("the verdict does not name the op")
    say("convtrace named the op that made the bad tensor, not the layers that suffered from it")
    print("The report as a page: %s" % (out / "diff.html"))


if __name__ == "__main__":
    main()

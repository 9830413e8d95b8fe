"""tools/suites: public test suites, plain and under the preload.

usage: tools/suites [NAME...]      without names: the small ones that tools/test runs
       tools/suites --full         all of the table
       tools/suites --list         the table: name, version, tests from, limit of a run in seconds, small or long
       tools/suites --pin NAME...  installs the newest versions of what the packages depend on, and adds them to pins.txt

options: --record   writes the rows into docs/lab/suites.md, and leaves those of other suites as they are
         --limit S  seconds for each of the two runs, where that is less than the table says
         --commit C what the build folder was built from, where that is not what is checked out

The packages are installed from pip's index and kept in build/suites, with the traces of the last run. CONVTRACE_BUILD is
the build folder (build/release). Exit code 0: no test differs (flaky ones do not count), no finding of level error is false
or unknown, every trace is sound, and nothing was said of an observation that failed. 1: otherwise. 2: usage, or a package
or a source cannot be had.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import findings
import outcomes
import page
import sources
import table

SHOWN = 3  # findings of a kind
KEPT = ("PATH", "LANG", "LC_ALL", "CC", "CXX", "LD_LIBRARY_PATH", "SSL_CERT_FILE")  # of the environment


class Ways:
    """One suite's two ways to run: the same words, in folders of their own."""

    def __init__(self, suite, python, files, build, folder, limit_s):
        self.suite, self.python, self.files, self.build, self.folder, self.limit_s = suite, python, files, build, folder, limit_s

    def run(self, way, select):
        """@return outcomes, processor seconds, and what is to be said of an end that was none."""
        place = sources.emptied(self.folder / way)
        for name in ("home", "tmp", "traces"):
            (place / name).mkdir()
        report, log = place / "junit.xml", place / "pytest.log"
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        env.update(HOME=str(place / "home"), TMPDIR=str(place / "tmp"), OMP_NUM_THREADS="1", PYTHONHASHSEED="0", HF_HUB_OFFLINE="1", CI="true",
                   **dict(self.suite.env))
        env["PATH"] = "%s:%s" % (self.python.parent, env.get("PATH", ""))
        if way.startswith("traced"):
            env.update(LD_PRELOAD=str(self.build / "lib" / "libconvtrace.so"), CONVTRACE_OUTPUT=str(place / "traces" / "%p.ctrace"),
                       CONVTRACE_OVERWRITE="1", CONVTRACE_LOG_FILE=str(place / "log"))
        words = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--continue-on-collection-errors", "-o", "addopts=",
                 "--junitxml", report, "--rootdir", self.files, *select]
        before = os.times()
        with open(log, "w") as out:
            process = subprocess.Popen([str(word) for word in words], cwd=self.files, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = process.wait(self.limit_s)
                ended = "" if code in (0, 1) else "%s ended with %s: %s" % (way, code, last_words(log))
            except subprocess.TimeoutExpired:
                ended = "%s was not done in %d s" % (way, self.limit_s)
            finally:
                stop(process)
        after = os.times()
        return outcomes.read(report), after.children_user + after.children_system - before.children_user - before.children_system, ended


def stop(process):
    """The session of pytest: what its tests left running, too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def last_words(log):
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "nothing said"


def judge(name, build, folder, limit_s):
    """Runs a suite both ways. @return what page.row() shows."""
    suite = table.SUITES[name]
    python = sources.environment(suite, folder / "python")
    files = sources.sources(suite, python, folder)
    ways = Ways(suite, python, files, build, folder, min(limit_s or suite.limit_s, suite.limit_s))
    (plain, plain_s, plain_end), (traced, traced_s, traced_end) = ways.run("plain", suite.select), ways.run("traced", suite.select)
    real, flaky = {}, {}
    differing = outcomes.differences(plain, traced)
    if differing and not plain_end and not traced_end:
        options = [word for word in suite.select if word.startswith("-")]
        again = outcomes.files(differing, files)
        real, flaky = outcomes.split(differing, ways.run("plain-again", options + again)[0], ways.run("traced-again", options + again)[0])
    read = findings.read(build / "bin" / "convtrace", folder / "traced" / "traces", folder / "traced" / "log")
    words = {key: findings.verdict(name, *key) for key in read.errors}
    return {
        "suite": name, "version": suite.version, "tests_from": suite.tests, "date": time.strftime("%Y-%m-%d"), "tests": len(plain),
        "plain": outcomes.counts(plain), "traced": outcomes.counts(traced), "ended": [end for end in (plain_end, traced_end) if end],
        "differences": {"::".join(key): value for key, value in sorted(real.items())},
        "flaky": {"::".join(key): value for key, value in sorted(flaky.items())},
        "plain_s": plain_s, "traced_s": traced_s, "traces": read.traces, "bytes": read.size, "values": read.values, "unclosed": read.unclosed,
        "broken": read.broken, "messages": dict(read.messages), "off": read.off[:5], "alive": read.alive,
        "errors": [{"command": key[0], "kind": key[1], "place": key[2], "times": times, "word": words[key][0], "reason": words[key][1],
                    "text": read.example[key]} for key, times in sorted(read.errors.items())],
    }


def good(result):
    return not (result["ended"] or result["differences"] or result["broken"] or not result["alive"] or not result["tests"]
                or any(error["word"] != "true" for error in result["errors"]))


def explain(result):
    """@return the details that the row lacks, as readable lines; result.json has everything."""
    lines = list(result["ended"]) + result["broken"] + result["off"]
    for word in ("differences", "flaky"):
        lines += ["%s: %s: plain %s, traced %s; again %s, %s" % (word, name, *four) for name, four in result[word].items()]
    shown = collections.Counter()
    for error in result["errors"]:
        which = error["command"], error["kind"], error["word"]
        shown[which] += 1
        if shown[which] <= SHOWN:
            lines.append("%s %s at %s, %d times: %s (%s)\n    %s" % (error["command"], error["kind"], error["place"] or "(root)", error["times"],
                                                                  error["word"], error["reason"], error["text"].replace("\n", "\n    ")))
    lines += ["%s %s: %s, %d more" % (*which, count - SHOWN) for which, count in shown.items() if count > SHOWN]
    return "".join("%s: %s\n" % (result["suite"], line) for line in lines)


def chosen(names, full):
    unknown = [name for name in names if name not in table.SUITES]
    if unknown:
        sys.exit("suites: there is no suite %s; --list has them" % ", ".join(unknown))
    return names or (list(table.SUITES) if full else table.default())


def main(root, words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    for option in ("--full", "--list", "--pin", "--record"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--commit", default=page.commit(root))
    asked = parser.parse_args(words)
    names = chosen(asked.names, asked.full or asked.list)
    if asked.list:
        for name in names:
            suite = table.SUITES[name]
            print(name, suite.version, suite.tests, suite.limit_s, "small" if suite.default else "long")
        return 0
    build = pathlib.Path(os.environ.get("CONVTRACE_BUILD", root / "build" / "release")).resolve()
    kept, bad = root / "build" / "suites", False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # pytest is stopped, too
    print(page.HEAD)
    try:
        for name in names:
            if asked.pin:
                sources.pin(sources.environment(table.SUITES[name], kept / name / "newest", pinned=False))
                shutil.rmtree(kept / name / "newest")
                continue
            result = judge(name, build, kept / name, asked.limit)
            result["commit"] = asked.commit
            (kept / name / "result.json").write_text(json.dumps(result, indent=1))
            bad |= not good(result)
            print(page.row(result), flush=True)
            sys.stderr.write(explain(result))
            if asked.record:
                page.record(root / "docs" / "lab" / "suites.md", result)
    except sources.Missing as reason:
        print("suites: %s cannot be had: %s" % (name, reason), file=sys.stderr)
        return 2
    return int(bad)

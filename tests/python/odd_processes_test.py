"""Processes of odd kinds under the preload: closed, limited, unshared, interrupted and killed ones, children, threads and
interpreters with other switches. All that they say is what they say plain. Needs the built libraries and programs
(CONVTRACE_BUILD)."""
import os
import re
import subprocess
import sys
import unittest

from host_test import HostTest
from preload_test import HERE, PRELOAD, SHOW

# Cases that cannot have a trace: no descriptor, no byte on the disk, no right to write into the folder, no file.
UNTRACED = {"no_descriptors", "no_files", "read_only_folder", "full_device"} | ({"other_user"} if os.getuid() == 0 else set())
# Cases that end before their trace is closed, or cannot write all of it.
UNCLOSED = re.compile("dies_of_|crash_told$|executes$|killed_rank$|pools$|small_files$")
HEAD = 64  # bytes, of a file's header alone
OWN = re.compile(r"convtrace\[\d+\] ([WE]) \S+: (CT-\d+) (.*)\n?")


class Odd(HostTest):
    def test_they_train_as_ever_and_leave_a_readable_trace_each(self):
        plain = self.run_in("plain", "odd.py", preload=False)
        traced = self.run_in("traced", "odd.py", preload=True, SHOW=SHOW)
        self.assertEqual((plain.returncode, traced.returncode), (0, 0), plain.stderr + traced.stderr)
        own = [line for line in traced.stderr.splitlines(True) if OWN.match(line)]
        self.check_equal(plain.stdout, traced.stdout)
        self.check_equal(plain.stderr, "".join(line for line in traced.stderr.splitlines(True) if line not in own))
        cases = set(re.findall(r"^([a-zA-Z]\w+) -?\d+ ", plain.stdout, re.M))
        self.assertGreater(len(cases), 40)
        found = {}
        for trace in self.traces():
            name, _, pid = os.path.basename(trace)[:-len(".ctrace")].rpartition("-")
            found.setdefault(name, []).append(pid)
            # The process was killed before the writer had described it; dies_of_KILL is killed after that.
            if UNCLOSED.match(name) and name != "dies_of_KILL" and os.path.getsize(trace) <= HEAD:
                continue
            done = subprocess.run([SHOW, "verify", trace], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
            self.assertIn(", 0 problems", done.stdout, trace)
            # A trace stays unclosed if its process does not end through Python.
            self.assertIn(done.returncode, (0, 3) if UNCLOSED.match(name) else (0,), trace + done.stdout)
        # A process that dies or is replaced in its first milliseconds may be gone before its writer has opened the file.
        dead = {name for name in cases if re.match("dies_of_|crash_told$|executes$", name)} - {"dies_of_KILL"}
        self.assertEqual(cases - set(found) - dead, UNTRACED | {"no_environment"})
        self.assertEqual(set(found) - cases, {"convtrace-0"})  # the one that has no environment, and so no name
        for name in cases & {"nothing_odd", "daemon", "threads", "few_descriptors", "interrupted", "dies_of_KILL", "deep"}:
            trace, = (one for one in self.traces() if os.path.basename(one).startswith(name + "-"))
            values = [r for r in self.records(trace, expect=3 if UNCLOSED.match(name) else 0) if r["record"] == "stats"]
            self.assertGreaterEqual(len({r["step"] for r in values}), 3, name)
            if name == "deep":  # what it trains at the end
                last = re.search(r"^deep 0 True (\[.*)", plain.stdout, re.M).group(1)
                self.assertEqual(str([float(r["mean"]).hex() for r in values if r["slot"] == "loss"][-4:]), last)
        said = OWN.findall(self.log() + "".join(own))
        self.assertLessEqual({code for _, code, _ in said}, {"CT-1004", "CT-1012", "CT-1101", "CT-1106", "CT-1108"}, said)
        codes = [code for _, code, _ in said]
        # A program whose children are not traced hears it once, however many there are.
        self.assertLessEqual(codes.count("CT-1012"), len({"forks", "pools"}), said)
        self.assertLessEqual(codes.count("CT-1101") + codes.count("CT-1108"), len(UNTRACED | {"small_files"}), said)
        self.assertEqual(len(found["hogwild"]), 4)
        refused = re.findall(r"^(\w+) 0 permitted: False", plain.stdout, re.M)
        if refused:
            self.skipTest("not permitted, and therefore as nothing_odd: " + ", ".join(refused))


class InterpreterTest(HostTest):
    """Switches of Python, what is loaded beside, what runs it, and an environment that is hardly there."""

    program = "odd.py"

    def run_python(self, place, options=(), arguments=(), around=(), preloads=(), **environment):
        self.folder = os.path.join(self.base, place)
        os.makedirs(self.folder)
        given = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"], **environment}
        if "LD_LIBRARY_PATH" in os.environ:
            given.setdefault("LD_LIBRARY_PATH", os.environ["LD_LIBRARY_PATH"])
        if preloads:
            given["LD_PRELOAD"] = ":".join(preloads)
        if PRELOAD in preloads:
            given.update(CONVTRACE_OUTPUT=os.path.join(self.folder, "%p.ctrace"), CONVTRACE_LOG_FILE=self.said)
        return subprocess.run([*around, sys.executable, *options, os.path.join(HERE, "programs", "host", self.program), *arguments],
                              env=given, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def check_python(self, options=(), arguments=(), around=(), beside=(), first=True, **environment):
        """@param beside  what is preloaded both ways. @param first  whether convtrace is before it."""
        traced_by = [PRELOAD, *beside] if first else [*beside, PRELOAD]
        plain = self.said_by(self.run_python("plain", options, arguments, around, beside, **environment))
        traced = self.said_by(self.run_python("traced", options, arguments, around, traced_by, **environment))
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.check_equal(plain.stdout, traced.stdout)
        self.check_equal(plain.stderr, traced.stderr)
        self.assertEqual((traced.returncode, len(self.traces()), self.log()), (0, 1, ""))
        self.assertGreater(len(self.values(self.traces()[0])), 50)

    def said_by(self, done):
        """@return what of the process's output is to be the same in both ways"""
        return done


class Interpreters(InterpreterTest):
    def test_an_isolated_one_in_hardly_any_environment(self):
        """No home, another locale, a long command line; and each import is told with its time."""
        self.check_python(["-I", "-E", "-bb", "-X", "importtime"], ["nothing_odd", *["--" + "x" * 100_000] * 15], LC_ALL="POSIX")

    def said_by(self, done):
        self.assertGreater(done.stderr.count("\nimport time:"), 500)
        kept = [line for line in done.stderr.splitlines(True) if not line.startswith("import time:")]
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, "".join(kept))


class AroundTest(InterpreterTest):
    program = "repeating.py"

    def need(self, words, sign):
        """Skips where a tool is not installed, or may not do its work."""
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True)
        except FileNotFoundError:
            self.skipTest("there is no " + words[0])
        if sign not in done.stdout:
            self.skipTest("%s does not work here: %s" % (words[0], done.stdout[-200:]))


class Watched(AroundTest):
    """Another process looks on, by ptrace."""

    def test_by_strace(self):
        calls = ["--seccomp-bpf", "-e", "trace=process,desc"]  # all calls take a minute
        self.need(["strace", *calls, "-f", "true"], "exit_group(0)")
        self.check_python(arguments=["distances"], around=["strace", *calls, "-f", "-qq", "-o", os.devnull])

    def test_by_a_debugger(self):
        gdb = ["gdb", "-nx", "-q", "-batch", "-iex", "set auto-solib-add off"]  # symbols of all libraries take long
        self.need([*gdb, "-ex", "run", "true"], "exited normally")
        self.check_python(arguments=["distances"], around=[*gdb, "-return-child-result", "-ex", "run", "--args"])

    def said_by(self, done):
        """gdb tells of each thread and process, with its number, in lines that begin with a bracket."""
        self.assertEqual(len(re.findall(r"^-?0x1\.[0-9a-f]+p[-+]\d+$", done.stdout, re.M)), 24)  # losses
        kept = [line for line in done.stdout.splitlines(True) if not line.startswith("[")]
        return subprocess.CompletedProcess(done.args, done.returncode, "".join(kept), done.stderr)


class Allocators(AroundTest):
    """Another memory allocator for the whole process."""

    def check_allocator(self, library, **how):
        done = subprocess.run(["true"], env={**os.environ, "LD_PRELOAD": library}, stderr=subprocess.PIPE, universal_newlines=True)
        if done.stderr:
            self.skipTest("there is no " + library)
        self.check_python(arguments=["margins"], beside=[library], **how)

    def test_jemalloc(self):
        self.check_allocator("libjemalloc.so.2")

    def test_tcmalloc_before_convtrace(self):
        self.check_allocator("libtcmalloc_minimal.so.4", first=False)

    def test_mimalloc_with_poison_and_quarantine(self):
        self.check_allocator("libmimalloc.so.2", CONVTRACE_POISON="1", CONVTRACE_QUARANTINE="1")


class MoreInterpreters(InterpreterTest):
    def test_switches_that_look_for_mistakes(self):
        self.check_python(["-OO", "-bb", "-X", "dev", "-X", "tracemalloc=2", "-W", "error::BytesWarning"], ["nothing_odd"],
                          PYTHONMALLOC="debug")


if __name__ == "__main__":
    unittest.main()

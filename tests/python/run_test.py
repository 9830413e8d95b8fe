"""`convtrace run`: the command in front of a program. Needs the built libraries and programs (CONVTRACE_BUILD)."""
import glob
import os
import re
import subprocess
import sys
import unittest

from controls_test import RUN, ControlsTest
from preload_test import HERE
from short_run import long


class Run(ControlsTest):
    """`convtrace run` says where the trace goes, and at the end what is in it."""

    def run_loop(self, *command, steps=3, stderr=subprocess.PIPE, options=("--output", "a.ctrace")):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "PYTHONPATH")}
        return subprocess.run([RUN, "run", *options, "--", *command], cwd=self.folder,
                              env=environment, input="1\n" * steps, stdout=subprocess.PIPE,
                              stderr=stderr, text=True)

    def check(self, done, steps=3):
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "end"), done.stderr)
        first, last = done.stderr.splitlines()
        path = os.path.join(self.folder, "a.ctrace")
        self.assertEqual(first, "convtrace: tracing to " + path)
        self.assertRegex(last, r"^convtrace: %s: %d steps, \d+ events, \d+ bytes a step; 0 not recorded, "
                         r"0 error findings; next: convtrace check %s$" % (re.escape(path), steps,
                                                                                    re.escape(path)))

    def program(self, steps=3):
        return [sys.executable, os.path.join(HERE, "programs", "loop.py"), str(steps)]

    def test_two_lines(self):
        self.check(self.run_loop(*self.program()))

    def test_an_output_that_exists_is_said_before_the_program_begins(self):
        self.write("a.ctrace", "precious")
        done = self.run_loop(*self.program())
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^convtrace: CT-2104 a.ctrace exists: choose another --output .*\n$")

    def test_an_output_that_cannot_be_written_is_said_before_the_program_begins(self):
        for output in "/proc/a.ctrace", os.path.join("no", "such", "folder", "a.ctrace"):
            done = self.run_loop(*self.program(), options=("--output", output))
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"^convtrace: CT-2106 %s: No such file or directory\n$" % output)
        done = self.run_loop(*self.program(), options=("--output", os.path.join("made", "a.ctrace")))
        self.assertEqual((done.returncode, os.listdir(os.path.join(self.folder, "made"))), (0, ["a.ctrace"]))

    def test_an_env_that_takes_the_library_away(self):
        done = self.run_loop("env", "-i", "true")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(done.stderr, "convtrace: CT-2201 nothing will be traced: env -i takes LD_PRELOAD away; "
                         "put `convtrace run --` behind its options\n")

    def test_a_warning_that_nobody_reads_does_not_end_the_command(self):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = self.run_loop("env", "-i", "echo", "it ran", stderr=writer)
        finally:
            os.close(writer)
        self.assertEqual((done.returncode, done.stdout), (0, "it ran\n"))

    @long("test_a_child_deep_down_that_trains_is_known")
    def test_through_a_shell(self):
        self.check(self.run_loop("bash", "-c", "true; " + " ".join(self.program())))

    @long("test_a_child_deep_down_that_trains_is_known; exec: artifact_test, odd_processes_test")
    def test_through_an_entry_point(self):
        """A container's entry point: a script that ends in exec."""
        script = self.write("entry.sh", '#!/bin/sh\nset -e\nexec "$@"\n')
        os.chmod(script, 0o755)
        self.check(self.run_loop(script, *self.program()))

    def test_a_nan_is_said_with_its_step(self):
        script = self.write("nan.py", "import torch\n"
                            "model = torch.nn.Linear(2, 2)\n"
                            "for value in 1.0, float('-inf'), float('nan'), 1.0:\n"
                            "    model(torch.full((1, 2), value))\n")
        last = self.run_loop(sys.executable, script).stderr.splitlines()[-1]
        self.assertRegex(last, "0 error findings, first NaN or infinity in step [12]; next: "
                         "convtrace show --nan /.*a.ctrace$")

    def test_warnings_are_counted(self):
        script = self.write("op.py", "import torch\n"
                            "@torch.library.custom_op('run_test::grows', mutates_args=())\n"
                            "def grows(x: torch.Tensor) -> torch.Tensor:\n"
                            "    x.data.add_(1)\n"
                            "    return x * 2\n"
                            "model = torch.nn.Linear(2, 2)\n"
                            "with torch.no_grad():\n"
                            "    grows(model(torch.ones(1, 2)))\n")
        last = self.run_loop(sys.executable, script).stderr.splitlines()[-1]
        self.assertRegex(last, "0 error findings, 1 warning; next: convtrace findings /.*a.ctrace$")

    def test_memory_that_is_not_watched_is_said(self):
        last = self.run_loop("env", "CONVTRACE_CPU_ALLOC=off", *self.program()).stderr.splitlines()[-1]
        self.assertIn("0 error findings (memory of CPU tensors not watched); next: ", last)

    def test_through_torchrun(self):
        script = self.write("ranks.py", "import os, time, torch\n"
                            "model = torch.nn.Linear(2, 2)\n"
                            "for step in range(3):\n"
                            "    model(torch.ones(1, 2))\n"
                            "    open(os.environ['RANK'], 'w').close()\n"
                            "    while not (os.path.exists('0') and os.path.exists('1')):\n"
                            "        time.sleep(0.01)\n")
        done = self.run_loop(sys.executable, "-m", "torch.distributed.run", "--standalone",
                             "--nproc-per-node", "2", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = [line for line in done.stderr.splitlines() if line.startswith("convtrace")]
        # The second rank finds the name taken and says under which it writes.
        self.assertEqual(len([line for line in ours if line.startswith("convtrace: ")]), 2, ours)
        self.assertEqual(len(glob.glob(os.path.join(self.folder, "*.ctrace"))), 2)

    def test_a_program_that_does_not_train_gets_one_line(self):
        for command in ("true",), (sys.executable, "-c", "raise SystemExit(256)"):  # of which the system keeps 0
            done = self.run_loop(*command)
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            self.assertRegex(done.stderr, r"^convtrace: CT-2202 .* no kernel was launched .*\n$")

    def test_a_program_that_failed_is_said_to_have_failed(self):
        for command in "exit 3", "true; exit 3":
            done = self.run_loop("bash", "-c", command)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertRegex(done.stderr, r"^convtrace: CT-2202 .* ended with exit code 3 .*\n$")

    def test_a_program_whose_stderr_nobody_reads_has_its_exit_code(self):
        reads, writes = os.pipe()
        os.close(reads)
        try:
            self.assertEqual(self.run_loop("bash", "-c", "true; exit 3", stderr=writes).returncode, 3)
        finally:
            os.close(writes)

    def test_a_program_that_unloads_the_preload_library_ends_as_ever(self):
        program = "import _ctypes, sys; _ctypes.dlclose(_ctypes.dlopen(sys.argv[1], 2)); sys.exit(3)"
        done = self.run_loop("sh", "-c", 'library=$LD_PRELOAD; unset LD_PRELOAD; exec "$@" "$library"',
                             "sh", sys.executable, "-SE", "-c", program)
        self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)

    def test_a_program_none_of_whose_children_trains_gets_one_line(self):
        for command in "true; ls > /dev/null; true", f"{sys.executable} -c 'import torch'; true":
            done = self.run_loop("bash", "-c", command)
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            self.assertRegex(done.stderr, r"^convtrace: CT-2202 .*\n$")

    def test_a_child_deep_down_that_trains_is_known(self):
        """Python closes every descriptor of what it starts."""
        script = self.write("outer.py", "import subprocess, sys\nsubprocess.run(['sh', '-c', sys.argv[1] + '; true'])\n")
        self.check(self.run_loop(sys.executable, script, " ".join(self.program())))

    @long("test_within_another_run_the_inner_one_explains")
    def test_a_child_that_was_told_why_not_needs_no_second_line(self):
        done = self.run_loop("bash", "-c", "CONVTRACE_STEPZ=1 " + " ".join(self.program()) + "; true")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("nothing was traced", done.stderr)

    def test_within_another_run_the_inner_one_explains(self):
        self.check(self.run_loop("bash", "-c", " ".join([RUN, "run", "--", *self.program()]) + "; true"))

    def test_a_program_that_trains_has_the_descriptors_that_it_has_untraced(self):
        """And so have its children, but for the high number of the trace (docs/limits.md)."""
        script = self.write("listed.py", "import os, torch\n"
                            "def listed():\n"
                            "    print(sorted(n for n in map(int, os.listdir('/proc/self/fd')) if n < 200), flush=True)\n"
                            "torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()\n"
                            "listed()\n"
                            "os.system('ls /proc/self/fd')\n"
                            "if os.fork() == 0:\n"
                            "    listed()\n"
                            "    os._exit(0)\n"
                            "os.wait()\n")
        plain = subprocess.run([sys.executable, script], input="", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        done = self.run_loop(sys.executable, script, steps=0)
        self.assertEqual((plain.returncode, plain.stderr), (0, ""))
        self.assertEqual((done.returncode, done.stdout), (0, plain.stdout))
        self.assertIn("tracing to", done.stderr)

    def test_a_program_that_closes_the_mark_hears_nothing(self):
        done = self.run_loop("bash", "-c", "eval exec ${CONVTRACE_RUN#*:}'>&-'; true")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()

"""Every way in which a job starts Python: the observer is there, and the results are the same."""
import importlib.util
import os
import subprocess
import sys
import unittest

from preload_test import HERE, PRELOAD, ProgramTest
from short_run import long

PACKAGES = os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin))


class ArrivalsTest(ProgramTest):
    def outcome(self, arguments, preload, **variables):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "PYTHONPATH")}
        environment.update(variables, OMP_NUM_THREADS="1")
        if preload:
            environment.update(LD_PRELOAD=PRELOAD, CONVTRACE_OUTPUT=os.path.join(self.folder, "%p.ctrace"))
        done = subprocess.run([sys.executable, *arguments], env=environment, cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def check(self, *arguments, steps=4, **variables):
        plain = self.outcome(arguments, False, **variables)
        self.assertEqual(self.outcome(arguments, True, **variables), plain)
        trace, = self.traces()
        self.check_clean(trace)
        records = self.records(trace)
        self.assertEqual([r["step"] for r in records if r["record"] == "step"], list(range(steps)))
        return [r for r in records if r["record"] == "stats"]

    def program(self, name="small.py"):
        return os.path.join(HERE, "programs", name)


class Options(ArrivalsTest):
    """`-I`, `-E` and `-S` import no sitecustomize from PYTHONPATH."""

    def check_whole(self, *options, **variables):
        records = self.check(*options, self.program(), **variables)
        places = {(r["step"], r["phase"], r["scope"], r["slot"]) for r in records}
        for place in ((0, "forward", "0", "param:weight"), (0, "data", "", "input:0"),
                      (0, "backward", "2", "grad_output:0"), (3, "optimizer", "2", "param:bias")):
            self.assertIn(place, places)

    def test_isolated(self):
        self.check_whole("-I")

    @long("test_isolated: -I is -E and -s")
    def test_without_the_environment(self):
        self.check_whole("-E")

    def test_without_site(self):
        self.check_whole("-S", PYTHONPATH=PACKAGES)


class Commands(ArrivalsTest):
    def test_a_module(self):
        self.check("-m", "small", PYTHONPATH=os.path.dirname(self.program()))

    @long("test_a_module")
    def test_a_text(self):
        with open(self.program()) as file:
            self.check("-c", file.read())


class Children(ArrivalsTest):
    """The child that trains writes a trace; its parent and the server do not."""

    def test_spawn(self):
        self.check(self.program("child.py"), "spawn", steps=3)

    @long("test_spawn, test_fork")
    def test_forkserver(self):
        self.check(self.program("child.py"), "forkserver", steps=3)

    def test_fork(self):
        self.check(self.program("child.py"), "fork", steps=3)


class Inference(ArrivalsTest):
    def test_every_root_forward_of_a_model_is_a_step(self):
        records = self.check(self.program("inference.py"), steps=3)
        self.assertEqual({r["phase"] for r in records}, {"data", "forward"})
        # The parameters once, the inputs of both roots, seven outputs in each step.
        outputs = [r for r in records if r["slot"] == "output:0"]
        self.assertEqual(len(outputs), 3 * 7)


if __name__ == "__main__":
    unittest.main()

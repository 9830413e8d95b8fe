"""`convtrace repeat` with training runs that repeat, and with some that do not."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from short_run import long

if importlib.util.find_spec("torch") is None:
    print("skipped: %s has no torch" % sys.executable)
    sys.exit(77)

BIN = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin"
PROGRAM = pathlib.Path(__file__).parent / "programs" / "repeats.py"


class RepeatTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def repeat(self, how, *options, command=(sys.executable, PROGRAM), **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k != "LD_PRELOAD"}
        return subprocess.run([BIN / "convtrace", "repeat", *options, "--", *command, how], cwd=self.folder,
                              env=dict(kept, OMP_NUM_THREADS="2", **environment), text=True, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def parts(self, how):
        """@return the report on runs that do not repeat."""
        result = self.repeat(how)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("\nDOES NOT REPEAT\n", result.stdout)
        return result.stdout

    def test_runs_that_are_equal_to_the_bit(self):
        result = self.repeat("same", "-n", "3", "--output", "runs %p", CONVTRACE_STEPS="0-1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("\nREPEATS: 3 runs are equal to the bit\nrun 2   is equal in ", result.stdout)
        self.assertIn(" values of 2 steps\n", result.stdout)
        runs = self.folder / "runs %p"
        self.assertEqual([len(list((runs / f"run-{i}").glob("r0-*.ctrace"))) for i in (1, 2, 3)], [1, 1, 1])
        # The runs serve as it says.
        command = result.stdout.split("\nnoise   ")[1].replace("CAND", f"'{runs}/run-3'")
        done = subprocess.run(["bash", "-c", command], env=dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}"),
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_weights_without_a_seed(self):
        (self.folder / "convtrace-repeat-1").mkdir()
        text = self.parts("weights")
        self.assertIn("run 2   first differs from run 1 at step 0, forward, 0 (call 0), param:weight\n", text)
        self.assertIn("\ntry     torch.manual_seed(0) at the start", text)
        self.assertIn("param:weight", (self.folder / "convtrace-repeat-2" / "diff-2.txt").read_text())

    @long('test_weights_without_a_seed; the advice of each place: recovery_test "repeat: "')
    def test_batches_that_depend_on_the_time(self):
        text = self.parts("clock")
        self.assertIn("at step 0, data, root module (call 0), input:0\n", text)
        self.assertIn("\ntry     the data differ, and PyTorch's seed does not", text)
        self.assertNotIn("manual_seed(0) at the start", text)

    @long('test_weights_without_a_seed; the advice of each place: recovery_test "repeat: "')
    def test_a_result_that_depends_on_the_time(self):
        text = self.parts("noise")
        self.assertIn("at step 0, forward, 1 (call 0), output:0\n", text)
        self.assertIn("\ntry     if that place draws random numbers", text)
        self.assertIn("use_deterministic_algorithms(True)", text)

    def not_known(self, how, why, **options):
        result = self.repeat(how, **options)
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertNotIn("REPEAT", result.stdout)
        self.assertIn(why, result.stdout + result.stderr)

    def test_a_run_that_fails(self):
        self.not_known("fails", "CT-2204 not known whether it repeats: run 1 ended with exit code 7")

    @long("test_a_run_that_fails")
    def test_a_run_that_leaves_no_trace(self):
        self.not_known("once", "CT-2204 not known whether it repeats: run 2 left no trace")

    @long('test_a_run_that_fails; unclosed traces: diff_test "unclosed"')
    def test_a_run_whose_trace_is_not_closed(self):
        self.not_known("cut", "CT-2102",
                       command=("sh", "-c", '"$0" "$@"; exit 0', sys.executable, PROGRAM))

    def test_a_run_that_goes_on_longer(self):
        self.not_known("further", "CT-2402 baseline: ends after step 2, the other run goes on to step 3")


if __name__ == "__main__":
    unittest.main()

"""Programs that find a driver library and no device: neither they nor their traces change, and nothing is printed."""
import collections
import json
import subprocess
import sys

import stage

TRAIN = stage.pathlib.Path(__file__).parent / "train.py"
CUPTI = {"12.4": stage.WHEELS / "cupti-12.4/nvidia/cuda_cupti/lib", "13.0": stage.WHEELS / "cupti-13.0/nvidia/cu13/lib"}
INIT = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"


def convtrace(*arguments):
    done = subprocess.run([stage.BUILD / "bin/convtrace", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError("convtrace %s: %s" % (arguments, done.stderr))
    return done.stdout


def facts(trace):
    return json.loads(convtrace("info", "--json", trace))["meta"]["facts"]


def counts(trace):
    """@return how many records of each kind there are, but for those that tell of time."""
    kinds = collections.Counter(json.loads(line)["record"] for line in convtrace("show", "--json", trace).splitlines())
    kinds.pop("cost", None)
    return kinds


class TrainingTestCase(stage.DriverTestCase):
    def train(self, name, *arguments, **options):
        """@return the program's output and its trace."""
        trace = self.folder / name
        done = stage.run([sys.executable, TRAIN, *arguments], traced=True, CONVTRACE_OUTPUT=str(trace), **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout, trace

    def test_training_on_the_cpu_leaves_the_same_trace_with_a_driver_library_as_without(self):
        plain = stage.run([sys.executable, TRAIN])
        self.assertEqual(plain.stdout.count("\n"), 4)
        without, first = self.train("without.ctrace")
        self.assertEqual(without, plain.stdout)
        recorded = counts(first)
        self.assertGreater(recorded["alloc"], 100)
        for driver in stage.SAMPLE:
            with self.subTest(driver=driver):
                beside, second = self.train("with-%s.ctrace" % driver, "cuInit", driver=driver,
                                            libraries=[CUPTI["12.4"]])
                self.assertEqual(beside, plain.stdout)
                self.assertEqual(counts(second), recorded)
                compare = [stage.BUILD / "bin/convtrace-diff", first, second]
                same = subprocess.run(compare, capture_output=True, text=True)
                self.assertEqual(same.returncode, 0, same.stdout + same.stderr)

    @stage.on_each(stage.SAMPLE)
    def test_a_process_that_only_calls_cuInit_prints_nothing(self, driver):
        for libraries in ([], [CUPTI["12.4"]], [CUPTI["13.0"]]):
            for mode in stage.BOTH_MODES:
                done = stage.run([sys.executable, "-c", INIT], driver=driver, traced=True, libraries=libraries, **mode)
                self.assertEqual((done.stdout, done.stderr), ("100\n", ""), libraries)

    @stage.on_each(stage.SAMPLE if stage.FULL else stage.SAMPLE[-1:])
    def test_mode_launches_says_that_there_is_no_gpu(self, driver):
        done = stage.run([sys.executable, TRAIN, "cuInit"], driver=driver, traced=True, libraries=[CUPTI["12.4"]],
                         CONVTRACE_MODE="launches", CONVTRACE_OUTPUT=str(self.folder / (driver + ".ctrace")))
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Aconvtrace\S* W .*mode launches records what a GPU runs.*\n\Z")

    def test_the_libcupti_is_the_one_that_was_asked_for_else_one_that_fits_the_driver(self):
        driver = list(stage.DRIVERS)[-1]  # CUDA 12
        asked = {"CONVTRACE_CUPTI": str(CUPTI["13.0"] / "libcupti.so.13")}
        for name, libraries, setting, library, version in (
                ("both", ["13.0", "12.4"], {}, "libcupti.so.12", "API 22"),
                ("newer", ["13.0"], {}, "libcupti.so.13", "13.0"),
                ("asked", ["12.4"], asked, "libcupti.so.13", "13.0")):
            folders = [CUPTI[version] for version in libraries]
            _, trace = self.train(name + ".ctrace", "cuInit", driver=driver, libraries=folders, **setting)
            told = facts(trace)
            self.assertTrue(told["path.cupti"].endswith("/" + library), told["path.cupti"])
            self.assertEqual(told["version.cupti"], version)


class ProgramsTestCase(stage.DriverTestCase):
    """The demo, and programs of tests/python that print the bits of what they compute; the short run has one process and
    two ranks of them."""

    FOLDER = stage.ROOT / "tests/python/programs"
    DEMO = [stage.ROOT / "tools/demo_gpt/train.py", "--device", "cpu", "--steps"]
    COMMANDS = [[FOLDER / "updates.py", "accumulation"], [FOLDER / "ddp.py"]]
    if stage.FULL:
        COMMANDS += [[*DEMO, "2"], [FOLDER / "gan.py"], [FOLDER / "unusual.py"], [FOLDER / "sharded.py", "fully_shard"]]

    def run_program(self, command, folder=None, **options):
        """@param folder  where its traces come to lie, if it is traced"""
        for _ in range(3):
            done = stage.run([sys.executable, *command], **options)
            # Ranks on gloo end like this now and then when they part, without a preload, too (as in preload_test.py).
            if ("terminate called without an active exception" not in done.stderr
                    or "torch/multiprocessing/spawn.py" not in done.stderr):
                break
            for trace in folder.iterdir() if folder else ():
                trace.unlink()
        return done

    def test_programs_print_the_same_bits_with_a_driver_library_and_the_preload(self):
        driver = list(stage.DRIVERS)[-1]
        if stage.FULL:
            stage.run([sys.executable, *self.DEMO, "0"])  # compiles its op, which another user may not
        for number, command in enumerate(self.COMMANDS):
            if command[0] == self.DEMO[0] and "setpriv" in stage.ISOLATED:
                continue
            with self.subTest(" ".join(map(str, command))):
                plain = self.run_program(command)
                self.assertEqual(plain.returncode, 0, plain.stderr)
                self.assertNotEqual(plain.stdout, "")
                folder = self.folder / str(number)
                folder.mkdir()
                folder.chmod(0o777)
                traced = self.run_program(command, folder, driver=driver, traced=True, libraries=[CUPTI["12.4"]],
                                          CONVTRACE_OUTPUT=str(folder / "%p.ctrace"),
                                          PYTHONPATH=str(stage.pathlib.Path(__file__).parent / "every_process"))
                self.assertEqual((traced.returncode, traced.stdout), (0, plain.stdout), traced.stderr)
                traces = list(folder.iterdir())
                self.assertNotEqual(traces, [])
                for trace in traces:
                    self.assertIn("path.cupti", facts(trace))  # it has called cuInit


if __name__ == "__main__":
    stage.main()

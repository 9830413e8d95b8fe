"""Real programs under the real preload library: same results to the last bit, a trace whose numbers
are torch's own, and no finding. Needs the built libraries and programs (CONVTRACE_BUILD)."""
import atexit
import functools
import glob
import importlib
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from short_run import long

SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt
if importlib.util.find_spec("torch") is None:
    print("skipped: %s has no torch" % sys.executable)
    sys.exit(SKIPPED)


class Lazily:
    """A module that is imported at its first use: most cases run programs that import PyTorch themselves."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        return getattr(importlib.import_module(self._name), name)


numpy, torch = Lazily("numpy"), Lazily("torch")

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("CONVTRACE_BUILD") or os.path.join(
    os.path.dirname(os.path.dirname(HERE)), "build", "release")
PRELOAD = os.path.join(BUILD, "lib", "libconvtrace.so")
SHOW = os.path.join(BUILD, "bin", "convtrace")
DIFF = SHOW + "-diff"

if not (os.path.exists(PRELOAD) and os.path.exists(SHOW)):
    print("skipped: %s and %s are not built" % (PRELOAD, SHOW))
    sys.exit(SKIPPED)


class SharedStart:
    """A process of programs/shared_start.py, with or without the preload library."""

    def __init__(self, preload):
        environment = untraced()
        if preload:
            environment["LD_PRELOAD"] = PRELOAD
        self._process = subprocess.Popen([sys.executable, os.path.join(HERE, "programs", "shared_start.py")], env=environment,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        atexit.register(self._process.communicate)

    def run(self, command, cwd, settings):
        with tempfile.TemporaryDirectory() as folder:
            said = [os.path.join(folder, name) for name in ("stdout", "stderr")]
            print(json.dumps(dict(argv=command, cwd=cwd, environment=settings, stdout=said[0], stderr=said[1])),
                  file=self._process.stdin, flush=True)
            status = int(self._process.stdout.readline())
            texts = []
            for path in said:
                with open(path, encoding="utf-8") as file:
                    texts.append(file.read())
        return subprocess.CompletedProcess(command, status, *texts)


@functools.lru_cache(None)
def shared_start(preload):
    return SharedStart(preload)


def untraced():
    """@return the environment of this process without the variables that cause tracing."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "PYTHONPATH")}
    return {**kept, "OMP_NUM_THREADS": "1"}


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class ProgramTest(unittest.TestCase):
    shared = False  # whether its programs begin in forks of one process (shared_start.py); others show how a process starts

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, name, *arguments, preload=True, python=sys.executable, **settings):
        if preload:
            settings.setdefault("CONVTRACE_OUTPUT", os.path.join(self.folder, "%r-%p.ctrace"))
        else:
            settings = {}
        command = [os.path.join(HERE, "programs", name), *arguments]
        if self.shared:
            return shared_start(preload).run(command, self.folder, settings)
        environment = {**untraced(), **({"LD_PRELOAD": PRELOAD} if preload else {}), **settings}
        for _ in range(3):
            done = subprocess.run([python, *command], env=environment, cwd=self.folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, universal_newlines=True)
            # Ranks on gloo end like this now and then when they part, without us, too.
            if ("terminate called without an active exception" not in done.stderr
                    or "torch/multiprocessing/spawn.py" not in done.stderr):
                break
            for trace in self.traces():
                os.remove(trace)
        return done

    def traces(self):
        return sorted(glob.glob(os.path.join(self.folder, "*.ctrace")))

    def records(self, trace, command="show", expect=0):
        done = subprocess.run([SHOW, command, "--json", trace], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def check_clean(self, trace):
        self.assertEqual(self.records(trace, "findings"), [])
        self.assertEqual([r for r in self.records(trace) if r["record"] == "diagnostic"], [])

    def check_printed_bits(self, name, trace_count, *arguments):
        plain = self.run_program(name, *arguments, preload=False)
        traced = self.run_program(name, *arguments)
        self.assertEqual((plain.returncode, traced.returncode), (0, 0), traced.stderr)
        self.assertEqual(plain.stdout, traced.stdout)
        self.assertEqual(plain.stderr, traced.stderr)
        self.assertEqual(len(self.traces()), trace_count)
        for trace in self.traces():
            self.check_clean(trace)


class Models(ProgramTest):
    """Bits and statistics of one model after the other."""

    shared = True

    def check_model(self, name):
        outputs = [os.path.join(self.folder, f) for f in ("plain.pt", "traced.pt")]
        plain = self.run_program("train.py", name, outputs[0], preload=False)
        traced = self.run_program("train.py", name, outputs[1])
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual((traced.returncode, traced.stdout, traced.stderr), (0, "", ""))
        expected, found = (torch.load(path) for path in outputs)
        self.check_bits(expected, found)
        trace, = self.traces()
        self.check_statistics(expected, self.records(trace))
        self.check_clean(trace)

    def check_bits(self, expected, found):
        self.assertEqual(len(expected), len(found))
        for (*place, a), (*other_place, b) in zip(expected, found):
            self.assertEqual(place, other_place)
            self.assertEqual(raw(a), raw(b), place)

    def check_statistics(self, kept, records):
        values = {}
        for r in records:
            if r["record"] == "stats" and r["op"] is None:
                key = r["step"], r["phase"], r["scope"], r["call"], r["slot"]
                values.setdefault(key, []).append(r)
        for *place, tensor in kept:
            if place[0] is None:
                continue
            record, = values.pop(tuple(place))
            self.check_record(place, tensor, record)
        # The remaining values are inputs, and buffers before the first call: no others were recorded.
        self.assertEqual({key[4].split(":")[0] for key in values} - {"buffer_initial"}, {"input"})

    def check_record(self, place, tensor, record):
        self.assertEqual(record["shape"], list(tensor.shape), place)
        x = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        x = x.to(torch.float64)
        n = x.numel()
        self.assertEqual((record["count"], record["finite"], record["nan"]), (n, n, 0), place)
        expected = {
            "min": x.min().item(), "max": x.max().item(), "amax": x.abs().max().item(),
            "mean": x.mean().item(), "std": x.std(unbiased=False).item(),
            "sum": x.sum().item(), "l1": x.abs().sum().item(), "l2": x.norm().item()}
        scale = {"mean": expected["amax"], "std": expected["amax"], "sum": expected["l1"]}
        relative, absolute = (1e-7, 1e-7) if tensor.dtype.is_floating_point and tensor.element_size() <= 2 else (1e-9, 1e-12)
        for field, value in expected.items():
            self.assertTrue(math.isclose(float(record[field]), value, rel_tol=relative,
                                         abs_tol=absolute * scale.get(field, 0)),
                            (place, field, record[field], value))

    def test_transformer(self):
        self.check_model("transformer")

    def test_cnn_with_in_place_relu(self):
        self.check_model("cnn")

    @long("Endings and Modes train it; its slots: modules_test test_lstm_outputs; test_transformer")
    def test_lstm(self):
        self.check_model("lstm")

    @long("steps_test Recompute; test_transformer")
    def test_activation_checkpointing(self):
        self.check_model("checkpointed")

    def test_mixed_precision_complex_and_views(self):
        self.check_model("mixed")

    def test_correct_custom_ops(self):
        self.check_model("custom")
        ops = {r["op"] for r in self.records(self.traces()[0])
               if r["record"] == "stats" and not r["slot"].startswith("needed:")} - {None}  # which torch's own nodes have saved
        self.assertEqual(ops, {"Square", "SquareBackward", "Passing", "PassingBackward",
                               "convtrace_programs::shift", "convtrace_programs::shiftBackward"})


class Snapshots(ProgramTest):
    """Stored values are unchanged after a trace and an export as .npy files."""

    shared = True

    def setUp(self):
        super().setUp()
        sys.path.insert(0, os.path.join(BUILD, "share", "convtrace", "python"))
        self.addCleanup(sys.path.pop, 0)

    def run_traced(self, said="", **settings):
        kept = os.path.join(self.folder, "kept.pt")
        done = self.run_program("train.py", "mixed", kept, **settings)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertRegex(done.stderr, r"\A%s\Z" % said)
        trace, = self.traces()
        exported = os.path.join(self.folder, "out")
        subprocess.run([SHOW, "export", "--format", "npy", "-o", exported, trace], check=True,
                       env={**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]})
        with open(os.path.join(exported, "index.jsonl")) as lines:
            index = [json.loads(line) for line in lines]
        arrays = {}
        from convtrace import hashes

        for line in index:
            if line["op"] is None:
                key = line["step"], line["phase"], line["scope"], line["call"], line["slot"]
                arrays[key] = numpy.load(os.path.join(exported, line["file"]))
                self.assertEqual(int(line["hash"], 16), hashes.hash_of(arrays[key].tobytes()), key)
        return torch.load(kept), arrays, trace

    def test_every_value_is_torchs_own(self):
        kept, arrays, trace = self.run_traced(
            r"convtrace\[\d+\] W values: CT-1202 every value is stored: [1-9]\d* bytes in the first step .*\n",
            CONVTRACE_MODE="snapshot", CONVTRACE_ALL="1")
        compared = 0
        for *place, tensor in kept:
            if place[0] is None:
                continue
            self.assertEqual(arrays[tuple(place)].tobytes(), raw(tensor), place)
            compared += 1
        self.assertGreater(compared, 20)
        captures = {r["slot"].split(":")[0]: r["capture"] for r in self.records(trace) if r["record"] == "stats"}
        self.assertEqual((captures["output"], captures["input"]), ("snapshot", "hash"))
        subprocess.run([SHOW, "verify", trace], check=True, stdout=subprocess.DEVNULL)

    def test_a_rule_takes_modules_in_one_step_with_their_inputs(self):
        config = os.path.join(self.folder, "rules.toml")
        with open(config, "w") as file:
            file.write('[[rule]]\nscope = "?*"\nsteps = 1\ncapture = "snapshot"\n')
        _, arrays, trace = self.run_traced(CONVTRACE_CONFIG=config)
        self.assertEqual({key[0] for key in arrays}, {1})
        self.assertNotIn("", {key[2] for key in arrays})
        self.assertIn("input", {key[4].split(":")[0] for key in arrays})
        others = {r["capture"] for r in self.records(trace) if r["record"] == "stats" and r["step"] != 1}
        self.assertEqual(others, {"stats", "hash"})

    def test_hashes_of_three_layers_give_that_of_one(self):
        import convtrace

        found = []
        for names in "q,k,v", "qkv":
            done = self.run_program("fused.py", names, CONVTRACE_OUTPUT=os.path.join(self.folder, names + ".ctrace"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            trace = convtrace.Trace(os.path.join(self.folder, names + ".ctrace"))
            self.assertEqual(trace.meta["hash_version"], 2)
            parts = {(event["phase"], event["slot"]): {} for event in trace if event["record"] == "stats"}
            for event in trace:
                if event["record"] == "stats" and event["scope"] in names.split(","):
                    value = int(event["hash"], 16), event["bytes"]
                    parts[event["phase"], event["slot"]][event["scope"]] = value
            found.append({place: convtrace.concat_hash([of[name] for name in names.split(",")])
                          for place, of in parts.items() if place[1] in ("param:weight", "grad:weight")})
        self.assertEqual(*found)
        self.assertEqual(len(found[0]), 3)  # the weight before and after the step, and its gradient


class OtherPrograms(ProgramTest):
    @long("updates_test test_each_update_of_a_gan_is_a_step")
    def test_gan(self):
        self.check_printed_bits("gan.py", 1)

    def test_torchs_profiler_sees_the_same_and_changes_nothing(self):
        plain = self.run_program("profiled.py", preload=False)
        traced = self.run_program("profiled.py")
        self.assertEqual((plain.returncode, traced.returncode), (0, 0), traced.stderr)
        self.assertEqual(plain.stdout, traced.stdout)
        self.assertNotIn("convtrace", traced.stderr)  # the profiler itself writes times there
        trace, = self.traces()
        self.check_clean(trace)

    def test_two_ranks_write_two_traces_and_the_launcher_none(self):
        self.check_printed_bits("ddp.py", 2)


    def test_what_scripts_do_that_examples_do_not(self):
        self.check_printed_bits("unusual.py", 1)
        values = [r for r in self.records(self.traces()[0]) if r["record"] == "stats"]
        self.assertEqual([r for r in values if not (r["value"] and r["scope"] is not None)], [])


class ShardedTest(ProgramTest):
    """The modules of a model have the same names on several processes as on one, in every kind of distribution."""

    SCOPES = {"", "0", "0.0", "0.1", "0.2", "1", "1.0", "1.1", "1.2", "2"}

    def check_ranks(self, way, weights=True):
        self.check_printed_bits("sharded.py", 2, way)
        for rank, trace in enumerate(self.traces()):
            self.assertTrue(os.path.basename(trace).startswith("%d-" % rank), trace)
            values = [r for r in self.records(trace) if r["record"] == "stats"]
            self.assertEqual({r["step"] for r in values}, {0, 1, 2})
            for step in range(3):
                places = {kind: {r["scope"] for r in values if (r["step"], r["slot"].split(":")[0]) == (step, kind)}
                          for kind in ("output", "grad_output", "grad", "param")}
                self.assertEqual((places["output"], places["grad_output"]), (self.SCOPES, self.SCOPES))
                if weights:
                    self.assertEqual(places["param"], {"0.0", "0.2", "1.0", "1.2", "2"})


class Sharded(ShardedTest):
    def test_fully_shard(self):
        self.check_ranks("fully_shard")

    @long("test_fully_shard; wrappers: modules_test test_wrappers_do_not_appear, host_test Swapped")
    def test_fsdp(self):
        self.check_ranks("fsdp")


class MoreSharded(ShardedTest):
    def test_fsdp_with_flat_parameters(self):
        self.check_ranks("fsdp-flat", weights=False)

    def test_zero_redundancy_optimizer(self):
        self.check_ranks("zero")


class Endings(ProgramTest):
    """However a program ends, it ends as without the preload, and its steps are in the trace."""

    def check_end(self, end, status, steps=(0, 1, 2)):
        outcomes = []
        for preload in (False, True):
            done = self.run_program("train.py", "lstm", "kept.pt", end, preload=preload)
            outcomes.append((done.returncode, done.stdout, done.stderr.splitlines()[-1:]))
        self.assertEqual(*outcomes)
        trace, = self.traces()
        records = self.records(trace)
        self.assertEqual(tuple(r["step"] for r in records if r["record"] == "step"), steps)
        info, = self.records(trace, "info")
        self.assertEqual(info["meta"]["facts"]["exit.status"], status)

    @long("every program that is traced; test_sys_exit")
    def test_return(self):
        self.check_end("return", "0")

    def test_sys_exit(self):
        self.check_end("sys.exit", "7")

    @long("test_exception_in_a_module")
    def test_exception(self):
        self.check_end("raise", "1")

    def test_exception_in_a_module(self):
        self.check_end("raise-in-module", "1", steps=(0, 1, 2, 3))

    def test_interrupt(self):
        self.check_end("interrupt", "SIGINT")

    def test_os_exit(self):
        self.check_end("os._exit", "8")


class ObserverEnds(ProgramTest):
    def test_what_was_not_observed_is_no_agreement(self):
        for size in "1", "2":
            done = self.run_program("observer_ends.py", size, CONVTRACE_OUTPUT=os.path.join(self.folder, size + ".ctrace"))
            self.assertEqual(done.returncode, 0, done.stderr)
        for command in ([DIFF, *self.traces()], [SHOW, "check", *self.traces()[:1]]):
            told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
            self.assertEqual(told.returncode, 3, told.stdout)
            self.assertRegex(told.stdout, r"5 records lost \(observer failed, see CT-1301\)")


class Modes(ProgramTest):
    shared = True

    def stats_of(self, says="", **settings):
        done = self.run_program("train.py", "lstm", "kept.pt", **settings)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "^%s$" % says)
        return [r for trace in self.traces() for r in self.records(trace) if r["record"] == "stats"]

    def test_hash_mode_has_hashes_alone(self):
        records = self.stats_of(CONVTRACE_MODE="hash")
        self.assertGreater(len(records), 10)
        self.assertEqual({("mean" in r, "hash" in r) for r in records}, {(False, True)})

    def test_launches_mode_has_no_values(self):
        says = ".* W settings: CT-1011 mode launches records what a GPU runs, and no CUDA context was made .*\n"
        self.assertEqual(self.stats_of(says, CONVTRACE_MODE="launches"), [])

    @long("controls_test Reload; modules_test StepWindow")
    def test_only_chosen_steps_have_values(self):
        self.assertEqual({r["step"] for r in self.stats_of(CONVTRACE_STEPS="1")}, {1})

    def test_only_chosen_modules_have_values(self):
        every = {r["scope"] for r in self.stats_of()}
        self.assertIn("head", every)
        for trace in self.traces():
            os.remove(trace)
        chosen = self.stats_of(CONVTRACE_INCLUDE="head;lstm*", CONVTRACE_EXCLUDE="re:^head$")
        self.assertEqual({r["scope"] for r in chosen}, {s for s in every if s.startswith("lstm")})

    @long("controls_test test_a_mode_that_is_off")
    def test_off_leaves_no_file(self):
        self.stats_of(CONVTRACE="0")
        self.assertEqual(self.traces(), [])


class HashesOfTraining(ProgramTest):
    STEPS = 120

    def test_equal_hashes_are_equal_bytes(self):
        """The tensors are the bf16 ones of a training run; 14,143 different ones make 1e8 pairs."""
        done = self.run_program("digests.py", "kept.json", str(self.STEPS), CONVTRACE_MODE="hash",
                                CONVTRACE_OPTIMIZER_STATE="1")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        trace, = self.traces()
        hashes = {}
        for r in self.records(trace):
            if r["record"] == "stats" and r["op"] is None and r["dtype"] == "bf16":
                hashes.setdefault((r["step"], r["phase"], r["scope"], r["call"], r["slot"]), []).append(r["hash"])
        with open(os.path.join(self.folder, "kept.json")) as kept:
            digests = {tuple(place): digest for *place, digest in json.load(kept)}
        pairs = set()
        for place, digest in digests.items():
            hash_, = hashes[place]
            pairs.add((hash_, digest))
        different = len({digest for _, digest in pairs})
        self.assertGreaterEqual(different * (different - 1) // 2, 10**8)
        self.assertEqual((len(pairs), len({hash_ for hash_, _ in pairs})), (different, different))
        self.assertEqual({place[4].split(":")[0] for place in digests},
                         {"output", "grad_output", "param", "grad", "state", "loss"})


def old_pythons():
    """Yields interpreters of this machine with a torch below 2.0: Debian 12 packages 1.13."""
    for python in ("/usr/bin/python3",):
        found = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if found.returncode == 0 and found.stdout.startswith(b"1."):
            yield python


class OldTorch(ProgramTest):
    """The records with torch 1.13: everything but dead storages and output aliasing."""

    def setUp(self):
        super().setUp()
        self.python = next(old_pythons(), None)
        if self.python is None:
            self.skipTest("no python here has a torch below 2.0")

    def test_steps_scopes_gradients_and_parameters(self):
        plain = self.run_program("small.py", preload=False, python=self.python)
        traced = self.run_program("small.py", python=self.python)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual((traced.returncode, traced.stdout, traced.stderr), (0, plain.stdout, ""))
        trace, = self.traces()
        self.check_clean(trace)
        values = [r for r in self.records(trace) if r["record"] == "stats"]
        losses = [float.fromhex(line) for line in plain.stdout.split()]
        self.assertEqual([r["mean"] for r in values if r["slot"] == "loss"], losses)
        for step in range(len(losses)):
            places = {(r["phase"], r["scope"], r["slot"]) for r in values if r["step"] == step}
            for scope in ("0", "2"):
                for slot in ("weight", "bias"):
                    self.assertIn(("backward", scope, "grad:" + slot), places)
                    self.assertIn(("optimizer", scope, "param:" + slot), places)
            for scope in ("", "0", "1", "2"):
                self.assertIn(("forward", scope, "output:0"), places)
                self.assertIn(("backward", scope, "grad_output:0"), places)


if __name__ == "__main__":
    unittest.main()

"""Settings, rules and triggers on real training scripts: requested values are recorded, changes are
followed, and patterns without a match are reported."""
import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest

from preload_test import BUILD, HERE, PRELOAD, ProgramTest
from short_run import long

RUN = os.path.join(BUILD, "bin", "convtrace")


class ControlsTest(ProgramTest):
    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.rename(path + ".new", path)
        return path

    def messages(self, expect=0):
        trace, = self.traces()
        return [r["message"] for r in self.records(trace, expect=expect) if r["record"] == "diagnostic"]


class WrongNames(ControlsTest):
    """A pattern that matched nothing is a warning with the names that were probably meant."""

    def lines_of(self, rules="", **settings):
        if rules:
            settings["CONVTRACE_CONFIG"] = self.write("rules.toml", rules)
        done = self.run_program("train.py", "lstm", "kept.pt", **settings)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return done.stderr.splitlines()

    def test_a_filter(self):
        line, = self.lines_of(CONVTRACE_INCLUDE="lsmt*;head")
        self.assertIn('W settings: CT-1010 CONVTRACE_INCLUDE "lsmt*" matched nothing; nearest of those that '
                      'occurred: "lstm"', line)

    @long('test_a_filter; what each rule says at the end: settings_test "rule_book"')
    def test_a_rule(self):
        line, = self.lines_of('[[rule]]\nscope = "haed"\ncapture = "hash"\n')
        self.assertIn('rules.toml:1: scope "haed" matched nothing; nearest of those that occurred: "head"',
                      line)

    def test_what_matched_is_counted_in_the_trace_and_not_said(self):
        self.assertEqual(self.lines_of('[[rule]]\nscope = "head"\nsteps = 1\ncapture = "hash"\n',
                                       CONVTRACE_EXCLUDE="lstm"), [])
        texts = self.messages()
        self.assertEqual(len(texts), 2, texts)
        self.assertIn('CONVTRACE_EXCLUDE "lstm": matched 1 name', texts[0])
        self.assertRegex(texts[1], r"rules.toml:1: matched 1 module, used [1-9]\d* time")


class Absence(ControlsTest):
    """A trace that lacks what was asked for says why, and so does a run that leaves none."""

    def lines_of(self, *options, program=("train.py", "lstm", "kept.pt"), preload=False, **settings):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "PYTHONPATH")}
        environment.update(settings)
        command = [sys.executable, os.path.join(HERE, "programs", program[0]), *program[1:]]
        if preload:
            environment.update(LD_PRELOAD=PRELOAD)
        else:
            command = [RUN, "run", *options, "--", *command]
        done = subprocess.run(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return done.stderr.splitlines()

    def test_steps_that_never_came(self):
        begin, why, end = self.lines_of("--steps", "900", "--output", "a.ctrace")
        self.assertRegex(why, r"W settings: CT-1011 CONVTRACE_STEPS 900 names none of the \d+ steps that ran "
                         r"\(0 to \d+\): there are no values in the trace$")
        self.assertTrue(any(why.endswith(text) for text in self.messages()), why)

    @long("test_steps_that_never_came")
    def test_steps_that_never_came_under_a_bare_preload(self):
        why, = self.lines_of(preload=True, CONVTRACE_STEPS="900")
        self.assertIn("CONVTRACE_STEPS 900 names none of the", why)

    @long('test_steps_that_never_came; which reason: engine_unit "absence", "name_filter"')
    def test_everything_excluded(self):
        begin, why, end = self.lines_of("--exclude", "*")
        self.assertRegex(why, r"CONVTRACE_EXCLUDE leaves none of the \d names that occurred")

    @long('settings_test "controls: what is good and has no effect"')
    def test_a_setting_without_an_effect(self):
        why, begin, end = self.lines_of("--spike", "3")
        self.assertIn("CONVTRACE_SPIKE has no effect: it is a trigger of CONVTRACE_RING", why)

    @long('test_steps_that_never_came; of rules: settings_test "rule_book"')
    def test_a_scope_rule_where_no_step_was_wanted(self):
        self.write("r.toml", '[[rule]]\nscope = "head"\ncapture = "hash"\n')
        begin, rule, steps, end = self.lines_of("--config", "r.toml", "--steps", "900")
        self.assertIn('scope "head" matched nothing; no module ran in a step whose values were wanted', rule)

    @long("preload_test Snapshots, which reads CT-1202")
    def test_every_value_says_its_bytes_after_the_first_step_that_has_some(self):
        begin, expected, end = self.lines_of("--mode", "snapshot", "--all", "--steps", "1-")
        self.assertRegex(expected, r"every value is stored: [1-9]\d* bytes in the first step")

    def test_a_trace_that_is_full_has_its_last_line_too(self):
        script = self.write("slow.py", "import time, torch\nmodel = torch.nn.Linear(9, 9)\n"
                            "for _ in range(8):\n    model(torch.ones(1, 9))\n    time.sleep(0.5)\n")
        begin, full, end = self.lines_of("--max-bytes", "2000", program=(script,))
        self.assertIn("has reached its 2000 bytes (CONVTRACE_MAX_BYTES)", full)
        self.assertRegex(end, r"ctrace: \d+ steps?, \d+ events, \d+ bytes.*; \d+ not recorded and nothing behind them, ")

    @long('settings_test "rule_book: one that matched and took nothing"')
    def test_a_rule_whose_steps_never_came(self):
        self.write("r.toml", '[[rule]]\nscope = "head"\nsteps = 900\ncapture = "hash"\n')
        begin, why, end = self.lines_of("--config", "r.toml")
        self.assertIn("r.toml:1: matched 1 module and took no value: its steps did not come", why)

    def test_ranks_that_the_job_does_not_have(self):
        why, = self.lines_of("--ranks", "3")
        self.assertIn("CONVTRACE_RANKS 3 names none of this job's ranks, 0 to 0", why)
        self.assertEqual(self.traces(), [])

    @long("test_the_first_rank_that_is_traced_speaks")
    def test_another_rank_of_the_job_says_nothing(self):
        self.assertEqual(self.lines_of("--ranks", "0", RANK="1", WORLD_SIZE="2"), [])

    @long('test_ranks_that_the_job_does_not_have; of rules: settings_test "rule_book"')
    def test_a_rule_of_ranks_that_the_job_does_not_have(self):
        self.write("r.toml", '[[rule]]\nscope = "head"\nranks = 5\ncapture = "hash"\n')
        begin, why, end = self.lines_of("--config", "r.toml")
        self.assertIn("r.toml:1: ranks 5 names none of this job's ranks, 0 to 0", why)

    @long("test_the_rank_that_a_program_gives_itself_is_the_one_that_counts")
    def test_a_rule_for_the_rank_that_a_program_gives_itself(self):
        self.write("r.toml", '[[rule]]\nscope = "*"\nranks = 1\ncapture = "snapshot"\n')
        done = self.run_program("ddp.py", CONVTRACE_CONFIG="r.toml")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        stored = {}
        for trace in self.traces():
            rank = self.records(trace, "info")[0]["meta"]["rank"]
            stored[rank] = sum(r.get("capture") == "snapshot" for r in self.records(trace))
        self.assertEqual(stored[0], 0)
        self.assertGreater(stored[1], 0)

    def test_the_first_rank_that_is_traced_speaks(self):
        begin, end = self.lines_of("--ranks", "1-2", RANK="1", WORLD_SIZE="3")
        self.assertIn("convtrace: tracing to ", begin)
        self.assertEqual(self.lines_of("--ranks", "1-2", RANK="2", WORLD_SIZE="3"), [])

    @long("narrowing_test NoOperations")
    def test_operations_of_no_module(self):
        begin, why, end = self.lines_of("--ops", "haed")
        self.assertIn('CONVTRACE_OPS "haed" matched no module that was called; nearest of those that were: "head"', why)

    @long("narrowing_test NoOperations; test_steps_that_never_came")
    def test_operations_where_no_step_was_wanted(self):
        begin, why, steps, end = self.lines_of("--ops", "head", "--steps", "900")
        self.assertIn('CONVTRACE_OPS "head" matched nothing; no module ran in a step whose values were wanted', why)

    @long('settings_test "controls: what is good and has no effect"')
    def test_a_trigger_that_no_value_can_pull(self):
        why, begin, end = self.lines_of("--ring", "2,nan", "--mode", "hash")
        self.assertIn("CONVTRACE_RING has no effect in part: its triggers nan and spike see statistics", why)

    def test_relative_names_begin_where_the_program_started(self):
        self.write("r.toml", "output = 'there.ctrace'\nlog = 'info'\nlog_file = 'log.txt'\n")
        script = self.write("leave.py", "import os\nos.chdir('/')\nimport torch\n"
                            "torch.nn.Linear(1, 1)(torch.ones(1))\n")
        for preload in False, True:
            self.lines_of(*([] if preload else ["--config", "r.toml"]), program=(script,), preload=preload,
                          **({"CONVTRACE_CONFIG": "r.toml"} if preload else {}))
            for name in "there.ctrace", "log.txt":
                os.unlink(os.path.join(self.folder, name))

    def test_tracing_that_is_off(self):
        self.assertEqual(self.lines_of("--enabled", "0"), ["convtrace: CT-2201 nothing will be traced: CONVTRACE=0"])

    @long("test_relative_names_begin_where_the_program_started")
    def test_a_settings_file_is_found_from_another_folder(self):
        self.write("r.toml", 'steps = 900\n')
        script = self.write("leave.py", "import os, torch\nos.chdir('/')\ntorch.nn.Linear(1, 1)(torch.ones(1))\n")
        begin, why, end = self.lines_of("--config", "r.toml", program=(script,))
        self.assertIn("CONVTRACE_STEPS 900 names none of the 1 step that ran", why)

    def test_a_child_that_nobody_waits_for_may_be_the_one(self):
        script = self.write("parent.py", "import subprocess\nsubprocess.Popen(['sleep', '0.5'])\n")
        self.assertEqual(self.lines_of(program=(script,)), [])

    @long('preload_test Modes, whose launches mode says it; engine_unit "absence: launches"')
    def test_a_mode_for_gpus_on_a_cpu(self):
        begin, why, end = self.lines_of("--mode", "launches")
        self.assertIn("mode launches records what a GPU runs, and no CUDA context was made", why)

    @long('Triggers.test_nothing_happened; engine_unit "flight_recorder: at the end it says"')
    def test_a_flight_recorder_without_a_trigger(self):
        begin, end = self.lines_of("--ring", "2")
        self.assertIn(", no trigger of CONVTRACE_RING came, so no step was written;", end)

    def test_a_flight_recorder_with_one(self):
        script = self.write("nan.py", "import torch\nmodel = torch.nn.Linear(2, 2)\n"
                            "for value in 1.0, 2.0, float('nan'):\n    model(torch.full((1, 2), value))\n")
        begin, end = self.lines_of("--ring", "1,nan", program=(script,))
        self.assertRegex(end, ", only what came with a trigger is in it, first nan in step [23]; next: convtrace show --nan")

    def test_a_mode_that_is_off(self):
        self.assertEqual(self.lines_of("--mode", "off"),
                         ["convtrace: CT-2201 nothing will be traced: the mode is off"])

    def test_a_python_that_calls_no_module(self):
        script = self.write("sum.py", "import torch\ntorch.ones(3).sum()\n")
        line, = self.lines_of(program=(script,))
        self.assertIn("convtrace: CT-2202 nothing was traced on this machine: no kernel was launched and no PyTorch module called", line)

    def test_the_rank_that_a_program_gives_itself_is_the_one_that_counts(self):
        done = self.run_program("ddp.py", CONVTRACE_RANKS="1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        trace, = self.traces()
        self.assertEqual(self.records(trace, "info")[0]["meta"]["rank"], 1)


class Loop:
    """A run of programs/loop.py that is advanced step by step."""

    def __init__(self, test, steps, **settings):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "PYTHONPATH")}
        environment.update(OMP_NUM_THREADS="1", LD_PRELOAD=PRELOAD,
                           CONVTRACE_OUTPUT=os.path.join(test.folder, "loop.ctrace"), **settings)
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "programs", "loop.py"), str(steps)], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self._process.communicate)
        test.addCleanup(self._process.kill)
        self.pid = self._process.pid
        self.next_line = self._process.stdout.readline()

    def go(self, *losses):
        """Makes one step for each loss."""
        for loss in losses:
            self._process.stdin.write("%s\n" % loss)
            self._process.stdin.flush()
            self.next_line = self._process.stdout.readline()

    def until_handled(self, number=signal.SIGABRT):
        """Waits until a signal is handled: another thread installs the handlers when the trace is opened, SIGABRT's last."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with open("/proc/%d/status" % self.pid) as status:
                caught, = [line.split()[1] for line in status if line.startswith("SigCgt:")]
            if int(caught, 16) >> (number - 1) & 1:
                return
            time.sleep(0.01)
        raise AssertionError("signal %d is not handled" % number)

    def end(self):
        """@return its exit code, and its output on stderr."""
        _, errors = self._process.communicate(timeout=60)
        return self._process.returncode, errors


class Reload(ControlsTest):
    """The file is read again when it has changed."""

    def stats_steps(self):
        trace, = self.traces()
        return {r["step"] for r in self.records(trace) if r["record"] == "stats"}

    def test_a_change_applies_and_is_recorded(self):
        config = self.write("c.toml", 'steps = "2|1000-"\ninclude = "*"\n')
        loop = Loop(self, 6, CONVTRACE_CONFIG=config)
        loop.go(1, 1, 1)
        self.write("c.toml", 'steps = "4-"\nmax_bytes = "1M"\n[[rule]]\nscope = "0"\ncapture = "hash"\n')
        time.sleep(3)
        loop.go(1, 1, 1)
        status, errors = loop.end()
        self.assertEqual(status, 0, errors)
        self.assertIn('max_bytes: "auto" -> "1M" needs a new start', errors)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertEqual(self.stats_steps(), {2, 4, 5})
        trace, = self.traces()
        kinds = {r["scope"]: r["capture"] for r in self.records(trace)
                 if r["record"] == "stats" and r["slot"] == "output:0"}
        self.assertEqual((kinds["0"], kinds["2"]), ("hash", "stats"))
        self.assertTrue(any('steps: "2|1000-" -> "4-"' in text for text in self.messages()))
        self.assertTrue(any("CONVTRACE_INCLUDE \"*\": matched" in text for text in self.messages()))
        steps = [r["step"] for r in self.records(trace)
                 if r["record"] == "diagnostic" and "was read again" in r["message"]]
        self.assertEqual(len(steps), 1)
        self.assertIsNotNone(steps[0])

    def test_an_edit_that_the_environment_overrules_is_said(self):
        config = self.write("c.toml", 'steps = "0"\nmode = "hash"\n')
        loop = Loop(self, 4, CONVTRACE_CONFIG=config, CONVTRACE_STEPS="1-")
        loop.go(1, 1)
        self.write("c.toml", 'steps = "5-"\nmode = "hash"\n')
        time.sleep(3)
        loop.go(1, 1)
        status, errors = loop.end()
        self.assertEqual(status, 0)
        self.assertRegex(errors, r"W settings: CT-1017 steps of .*/c.toml has no effect: CONVTRACE_STEPS "
                         r"\(an option or the environment\) wins\n$")
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertEqual(self.stats_steps(), {1, 2, 3})

    def test_a_file_that_is_read_again_takes_no_number_of_the_program(self):
        config = self.write("c.toml", 'mode = "hash"\n')
        loop = Loop(self, 4, CONVTRACE_CONFIG=config)
        loop.go(1, 1)

        def is_open_in(table):
            with contextlib.suppress(FileNotFoundError):  # a thread has ended, or a number was closed
                return any(os.readlink(os.path.join(table, number)) == config for number in os.listdir(table))

        self.write("c.toml", "# so that it takes a while\n" * 2**20 + 'mode = "stats"\n')
        deadline, seen = time.monotonic() + 60, 0
        while not seen and time.monotonic() < deadline:
            for task in os.listdir("/proc/%d/task" % loop.pid):
                seen += bool(is_open_in("/proc/%d/task/%s/fd" % (loop.pid, task)))
                self.assertFalse(is_open_in("/proc/%d/fd" % loop.pid))
        self.assertTrue(seen)
        loop.go(1, 1)
        self.assertEqual(loop.end()[0], 0)

    def test_a_broken_file_keeps_the_old_settings_and_says_so(self):
        config = self.write("c.toml", "samples = 2\n")
        loop = Loop(self, 4, CONVTRACE_CONFIG=config)
        loop.go(1, 1)
        self.write("c.toml", 'samples = 2\nstepz = "5-"\n')
        time.sleep(3)
        loop.go(1, 1)
        status, errors = loop.end()
        self.assertEqual(status, 0)
        self.assertRegex(errors, r'c.toml:2: unknown key "stepz"; the nearest is steps; the old settings stay\n$')
        self.assertEqual(self.stats_steps(), {0, 1, 2, 3})


class Triggers(ControlsTest):
    """The events that make the flight recorder write."""

    def steps_of(self, expect=0):
        trace, = self.traces()
        return [r["step"] for r in self.records(trace, expect=expect)
                if r["record"] == "stats" and r["slot"] == "loss"]

    def test_nothing_happened_nothing_is_written(self):
        loop = Loop(self, 30, CONVTRACE_RING="2")
        loop.go(*[1] * 30)
        self.assertEqual(loop.end(), (0, ""))
        self.assertEqual(self.steps_of(), [])

    def test_a_spike_of_the_loss(self):
        loop = Loop(self, 30, CONVTRACE_RING="2,spike")
        loop.go(*[1 + 0.01 * (i % 3) for i in range(25)], 9, *[1] * 4)
        self.assertEqual(loop.end(), (0, ""))
        self.assertEqual(self.steps_of(), [24, 25])
        self.assertIn("trigger spike", self.messages()[0])

    @long('test_a_spike_of_the_loss; limits: engine_unit "loss_watch"')
    def test_a_loss_above_the_absolute_limit(self):
        loop = Loop(self, 4, CONVTRACE_RING="1,spike", CONVTRACE_SPIKE="6,100")
        loop.go(1, 2, 101, 3)
        self.assertEqual(loop.end(), (0, ""))
        self.assertEqual(self.steps_of(), [2])

    def test_usr2_writes_and_the_program_goes_on(self):
        loop = Loop(self, 8, CONVTRACE_RING="2,USR2")
        loop.go(1, 1, 1, 1)
        loop.until_handled(signal.SIGUSR2)
        os.kill(loop.pid, signal.SIGUSR2)
        time.sleep(1)
        loop.go(1, 1, 1, 1)
        self.assertEqual(loop.end(), (0, ""))
        self.assertEqual(self.steps_of(), [2, 3])

    def test_a_signal_that_ends_the_program_writes_first(self):
        for number in (signal.SIGTERM, signal.SIGSEGV):
            with self.subTest(number):
                for trace in self.traces():
                    os.remove(trace)
                loop = Loop(self, 8, CONVTRACE_RING="2,signal")
                loop.go(1, 1, 1, 1)
                loop.until_handled()
                os.kill(loop.pid, number)
                self.assertEqual(loop.end()[0], -number)
                self.assertEqual(self.steps_of(expect=3), [2, 3])

    def test_without_the_trigger_signals_do_what_they_did(self):
        loop = Loop(self, 4, CONVTRACE_RING="2,nan")
        loop.go(1)
        os.kill(loop.pid, signal.SIGUSR2)
        self.assertEqual(loop.end()[0], -signal.SIGUSR2)

    def test_the_programs_own_handler_still_runs(self):
        """Python turns SIGINT into an exception; the trace is written and then closed."""
        loop = Loop(self, 8, CONVTRACE_RING="2,signal")
        loop.go(1, 1, 1)
        loop.until_handled()
        os.kill(loop.pid, signal.SIGINT)
        status, errors = loop.end()
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(self.steps_of(), [1, 2])


class Debugger(ControlsTest):
    """pdb works as it does without us."""

    def test_break_step_print_continue(self):
        commands = "break 15\ncontinue\nprint(step)\nnext\nwhere\nprint(round(float(loss), 1))\nclear 1\ncontinue\n"
        outputs = []
        for preload in (False, True):
            environment = {k: v for k, v in os.environ.items()
                           if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "PYTHONPATH")}
            if preload:
                environment.update(LD_PRELOAD=PRELOAD,
                                   CONVTRACE_OUTPUT=os.path.join(self.folder, "a.ctrace"))
            # The first lines are pdb's; the loop reads its losses from the same input.
            done = subprocess.run([sys.executable, "-m", "pdb", os.path.join(HERE, "programs", "loop.py"), "2"],
                                  env=environment, input=commands.replace("continue\nprint", "continue\n2\nprint", 1)
                                  + "3\nquit\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=120)
            outputs.append((done.returncode, done.stdout, done.stderr))
        self.assertEqual(*outputs)
        self.assertIn("2.0", outputs[0][1])
        trace, = self.traces()
        self.assertEqual({r["step"] for r in self.records(trace) if r["record"] == "stats"}, {0, 1})


if __name__ == "__main__":
    unittest.main()

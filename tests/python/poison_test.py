"""CONVTRACE_POISON under the real preload library: outputs that an op leaves unwritten are found, memory of others is
not touched, and a message says where poisoning is impossible."""
import json
import os
import subprocess
import unittest

from preload_test import SHOW, ProgramTest, raw, torch
from short_run import long


class Poison(ProgramTest):
    def run_poisoned(self, **settings):
        return self.run_program("poison.py", os.path.join(self.folder, "file"), CONVTRACE_POISON="1", **settings)

    def command(self, expect, *words):
        done = subprocess.run([SHOW, *words], stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, expect)
        return done.stdout

    def test_unwritten_elements_are_found_where_they_arise(self):
        done = self.run_poisoned()
        self.assertEqual(done.stdout.splitlines(), [
            "written 2048", "others [2048, 2048, 2048, 2048]", "passed on True", "whole 8192.0 0.0 -64 True", "mapped 499500.0", "file 499500.0",
            "shared 4950.0", "loaded [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]"], done.stderr)
        trace, = self.traces()
        found = self.records(trace, "findings")
        self.assertEqual({(one["kind"], one["level"], one["slot"]) for one in found},
                         {("never-written", "warning", "output:0")})
        again = [one["message"] for one in found if one["op"].startswith("Reuses")]
        self.assertTrue(any("what output:0 of op Whole in the root module (call 0, forward) in step 0, whose memory it was "
                            "before, left there" in message for message in again), again)
        self.assertEqual([one["op"] for one in found if not one["op"].startswith("Reuses")],
                         ["Half", "Indices", "Bytes", "Narrow", "Brain"])
        for one in found:
            self.assertIn("was not written in 2048 of 4096 elements", one["message"])
        self.assertNotIn("CONVTRACE_POISON", done.stderr)

    @long("Quarantine.test_results_and_findings_of_a_right_program, which has poison, too")
    def test_results_of_a_program_that_writes_what_it_reads_are_its_own(self):
        outputs = [os.path.join(self.folder, name) for name in ("plain.pt", "poisoned.pt")]
        plain = self.run_program("train.py", "transformer", outputs[0], preload=False)
        poisoned = self.run_program("train.py", "transformer", outputs[1], CONVTRACE_POISON="1")
        self.assertEqual((poisoned.returncode, poisoned.stdout, poisoned.stderr), (0, plain.stdout, ""))
        for (*place, expected), (*_, found) in zip(*map(torch.load, outputs)):
            self.assertEqual(raw(expected), raw(found), place)
        trace, = self.traces()
        self.check_clean(trace)

    def test_a_nan_of_the_pattern_is_told_as_never_written(self):
        self.run_program("unwritten.py", CONVTRACE_POISON="1")
        trace, = self.traces()
        report = json.loads(self.command(4, "check", "--json", "-", trace))
        finding, = (one for one in report["findings"] if one["id"] == "nan")
        self.assertEqual((finding["level"], finding["scope"], finding["cause"]), ("error", "1", "memory that was never written"))
        self.assertIn("16 elements hold what CONVTRACE_POISON fills new memory with", finding["evidence"])
        self.assertIn("\nIt was never written: 16 elements hold what CONVTRACE_POISON", self.command(0, "show", "--nan", trace))

    def test_a_nan_of_freed_memory_is_told_with_who_freed_it(self):
        self.run_program("freed.py", CONVTRACE_POISON="1", CONVTRACE_QUARANTINE="1", CONVTRACE_STACKS="all")
        trace, = self.traces()
        report = json.loads(self.command(4, "check", "--json", "-", trace))
        finding, = (one for one in report["findings"] if one["id"] == "nan")
        self.assertEqual((finding["scope"], finding["op"], finding["cause"]),
                         ("1", "Keeps", "memory that was read after it was freed"))
        self.assertEqual(finding["next"], f"convtrace show --nan {trace} tells who freed it")
        told = self.command(0, "show", "--nan", trace)
        self.assertRegex(told, r"\nIt was read after it was freed: .* Last freed of what was taken there before: input:0 of "
                               r"step 0, freed in step 0 at record \d+ by forward \(.*container\.py:\d+\), below step \(.*freed\.py:\d+\)\.\n")

    def test_poison_is_proposed_for_what_a_custom_op_makes_of_finite_numbers(self):
        for poison in "0", "1":
            trace = os.path.join(self.folder, poison + ".ctrace")
            self.run_program("freed.py", "nan", CONVTRACE_POISON=poison, CONVTRACE_OUTPUT=trace)
            finding, = (one for one in json.loads(self.command(4, "check", "--json", "-", trace))["findings"] if one["id"] == "nan")
            self.assertEqual("`convtrace run --poison 1 -- CMD`" in finding["next"], poison == "0")
            self.assertIn("memory that was not written", finding["cause"])

    def test_where_it_cannot_be_done_it_is_said(self):
        done = self.run_poisoned(CONVTRACE_CPU_ALLOC="off")
        self.assertIn("CONVTRACE_POISON does not fill memory of CPU tensors here", done.stderr)
        trace, = self.traces()
        self.assertEqual(self.records(trace, "findings"), [])

    @long("test_where_it_cannot_be_done_it_is_said")
    def test_of_a_settings_file_it_comes_too_late(self):
        config = os.path.join(self.folder, "settings.toml")
        with open(config, "w") as file:
            file.write("poison = true\nquarantine = true\n")
        done = self.run_program("poison.py", os.path.join(self.folder, "file"), CONVTRACE_CONFIG=config)
        self.assertIn("poison of a settings file comes too late", done.stderr)
        self.assertIn("quarantine of a settings file comes too late", done.stderr)


class Quarantine(ProgramTest):
    def run_held(self, **settings):
        done = self.run_program("quarantine.py", CONVTRACE_QUARANTINE="1", **settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def addresses(self, done):
        """@return the number of different addresses of a hundred tensors, each freed before the next one is made."""
        return int(done.stdout.splitlines()[0].split()[1])

    def test_freed_memory_is_not_given_out_again_at_once(self):
        self.assertLess(self.addresses(self.run_program("quarantine.py", preload=False)), 50)
        self.assertEqual(self.addresses(self.run_held()), 100)

    def test_a_reader_of_memory_that_nobody_owns_is_found(self):
        """The reader gets poison: neither the freed tensor's content nor another tensor's."""
        done = self.run_held(CONVTRACE_POISON="1", CONVTRACE_STACKS="all")
        self.assertEqual(done.stdout.splitlines()[1], "read nan")
        trace, = self.traces()
        findings = self.records(trace, "findings", expect=4)
        self.assertEqual({finding["kind"] for finding in findings},
                         {"output-aliases-input", "freed-under-output", "stale-read"})
        stale = next(finding for finding in findings if finding["kind"] == "stale-read")
        self.assertEqual((stale["scope"], stale["slot"], stale["op"]), ("reader", "input:0", "Alias"))
        self.assertIn("nobody owns it now", stale["message"])
        self.assertIn("quarantine.py", " ".join(stale["stacks"]["launch"]))
        for name in "alloc", "free":
            self.assertTrue(stale["stacks"][name], name)

    def test_results_and_findings_of_a_right_program_are_its_own(self):
        outputs = [os.path.join(self.folder, name) for name in ("plain.pt", "held.pt")]
        plain = self.run_program("train.py", "transformer", outputs[0], preload=False)
        held = self.run_program("train.py", "transformer", outputs[1], CONVTRACE_QUARANTINE="1", CONVTRACE_POISON="1")
        self.assertEqual((held.returncode, held.stdout, held.stderr), (0, plain.stdout, ""))
        for (*place, expected), (*_, found) in zip(*map(torch.load, outputs)):
            self.assertEqual(raw(expected), raw(found), place)
        trace, = self.traces()
        self.check_clean(trace)

    def test_what_is_held_is_little(self):
        grown = int(self.run_held().stdout.splitlines()[2].split()[1])
        self.assertLess(grown, 128 << 20)

    def test_a_process_whose_memory_is_limited_holds_nothing(self):
        done = self.run_held(LIMIT=str(64 << 30))
        self.assertLess(self.addresses(done), 50)
        self.assertIn("CONVTRACE_QUARANTINE does not hold memory of CPU tensors", done.stderr)


if __name__ == "__main__":
    unittest.main()

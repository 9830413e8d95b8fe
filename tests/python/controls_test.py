"""Settings and rules on a real training script: what is asked for is taken, and what can match nothing
is said."""
import os
import unittest

from preload_test import ProgramTest


class WrongNames(ProgramTest):
    """A pattern that matched nothing is a warning with the names that were probably meant."""

    def lines_of(self, rules="", **settings):
        if rules:
            settings["CONVTRACE_CONFIG"] = self.write("rules.toml", rules)
        done = self.run_program("train.py", "lstm", "kept.pt", **settings)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return done.stderr.splitlines()

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_a_filter(self):
        line, = self.lines_of(CONVTRACE_INCLUDE="lsmt*;head")
        self.assertIn('W settings: CONVTRACE_INCLUDE "lsmt*" matched nothing; nearest of those that '
                      'occurred: "lstm"', line)

    def test_a_rule(self):
        line, = self.lines_of('[[rule]]\nscope = "haed"\ncapture = "hash"\n')
        self.assertIn('rules.toml:1: scope "haed" matched nothing; nearest of those that occurred: "head"',
                      line)

    def test_what_matched_is_counted_in_the_trace_and_not_said(self):
        self.assertEqual(self.lines_of('[[rule]]\nscope = "head"\nsteps = 1\ncapture = "hash"\n',
                                       CONVTRACE_EXCLUDE="lstm"), [])
        trace, = self.traces()
        texts = [r["message"] for r in self.records(trace) if r["record"] == "diagnostic"]
        self.assertEqual(len(texts), 2, texts)
        self.assertIn('CONVTRACE_EXCLUDE "lstm": matched 1 names', texts[0])
        self.assertRegex(texts[1], r"rules.toml:1: matched 1 scopes, used [1-9]\d* times")


if __name__ == "__main__":
    unittest.main()

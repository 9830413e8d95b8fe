"""Ops that return memory that they do not own are found, each by its name; correct ops that look alike
give no finding. Real PyTorch under the real preload library."""
import json
import os
import re
import subprocess
import unittest

from preload_test import HERE, SHOW, ProgramTest, torch


class Aliasing(ProgramTest):
    shared = True

    def run_cases(self, which):
        """@return the runs of a program without and with the preload, and its findings."""
        plain = self.run_program("aliasing.py", which, preload=False)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        traced = self.run_program("aliasing.py", which)
        self.assertEqual(traced.returncode, 0, traced.stderr)
        trace, = self.traces()
        found = self.records(trace, "findings", expect=4 if which == "faulty" else 0)
        self.check_replay(trace, found)
        return plain, traced, found

    def check_replay(self, trace, found):
        done = subprocess.run([SHOW, "findings", "--replay", "--json", trace], stdout=subprocess.PIPE, text=True)
        replayed = [json.loads(line) for line in done.stdout.splitlines()]
        for finding in (*found, *replayed):
            del finding["seq"]
        self.assertEqual(found, replayed)

    def test_each_faulty_op_is_named_and_no_other(self):
        plain, traced, found = self.run_cases("faulty")
        names = [line.split()[0] for line in plain.stdout.splitlines() if line[0] != "#"]
        self.assertEqual([line.split()[0] for line in traced.stdout.splitlines() if line[0] != "#"], names)
        self.assertIn("# second unwinder: True\n# a C++ exception arrived\n", traced.stdout)
        self.assertEqual({f["op"] for f in found}, set(names))
        errors = [f for f in found if f["level"] == "error"]
        self.assertEqual({f["kind"] for f in errors} - {"stale-read"}, {"freed-under-output"})
        mutated = {f["op"]: f["slot"] for f in found if f["kind"] == "input-mutated"}
        self.assertEqual(mutated, {"ChangesInput": "input:0", "ChangesGradientBackward": "grad_output:0",
                                   "aliasing_test::denies": "input:0"})
        # The argument itself has one storage with the result: nothing can be freed under it.
        self.assertEqual({f["op"] for f in errors}, set(names) - {"aliasing_test::hidden"} - set(mutated))
        freed = {f["op"]: f for f in errors if f["kind"] == "freed-under-output"}
        self.assertEqual(freed["GivesNinth"]["slot"], "output:8")
        self.assertEqual(freed["GivesInterior"]["bytes"], 4 * (64 * 64 - 512))
        self.assertEqual((freed["GivesGradientBackward"]["phase"], freed["GivesGradientBackward"]["slot"]),
                         ("backward", "grad_input:0"))
        # The former owner is unknown, but the allocator has given the memory to another one.
        self.assertEqual((freed["GivesTemporary"]["slot"], freed["GivesTemporary"]["other"]), ("output:0", None))
        self.assertIn("given it out again", freed["GivesTemporary"]["message"])
        self.assertEqual((freed["GivesBuffer"]["slot"], freed["GivesBuffer"]["other"]), ("output:0", None))
        self.assertEqual([f["op"] for f in found if f["kind"] == "output-aliases-input"].count("Late"), 1)
        self.assertIn(" W finding: CT-1201 freed-under-output", traced.stderr)

    def test_a_rule_that_declares_writing_in_place_does_not_hide_a_free(self):
        rules = os.path.join(self.folder, "rules.toml")
        with open(rules, "w") as file:
            file.write('[[rule]]\nscope = "doubled"\ninplace = true\n')
        done = self.run_program("declared.py", CONVTRACE_CONFIG=rules)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace, = self.traces()
        found = self.records(trace, "findings", expect=4)
        self.check_replay(trace, found)
        silenced = {f["kind"] for f in found if f["suppressed"]}
        self.assertEqual(silenced, {"input-mutated", "output-aliases-input"})
        told = {f["kind"] for f in found if not f["suppressed"]}
        self.assertEqual(told - {"stale-read"}, {"freed-under-output"})
        info, = self.records(trace, "info")
        self.assertEqual(info["findings_suppressed"], sum(f["suppressed"] for f in found))

    def test_correct_programs_have_no_error_and_no_warning_but_for_sharing(self):
        plain, traced, found = self.run_cases("correct")
        # A result in memory of another owner is a warning, not an error.
        self.assertEqual({(f["op"], f["kind"], f["level"]) for f in found},
                         {(op, "output-aliases-input", "warning") for op in ("Numpy", "Dlpack", "NumpyOwner")})
        self.assertEqual((traced.stdout, traced.stderr), (plain.stdout, plain.stderr))

    def test_a_million_allocations_and_frees_at_the_same_addresses_are_nothing(self):
        done = self.run_program("aliasing.py", "million")
        self.assertEqual(done.returncode, 0, done.stderr)
        trace, = self.traces()
        self.assertEqual(self.records(trace, "findings"), [])
        info, = self.records(trace, "info")
        seen = info["records"]["alloc"] + info["records"]["free"]
        self.assertGreater(seen + sum(info["lost"].values()), 1_000_000)


class Extension(ProgramTest):
    def test_ops_in_cpp_are_found_forward_and_backward(self):
        library = os.path.join(self.folder, "ops.so")
        torch_folder = os.path.dirname(torch.__file__)
        subprocess.run(
            [os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", "-O0", "-w", "-o", library,
             os.path.join(HERE, "programs", "aliasing_ops.cpp"), "-I", os.path.join(torch_folder, "include"),
             "-D_GLIBCXX_USE_CXX11_ABI=%d" % torch.compiled_with_cxx11_abi(),
             "-L", os.path.join(torch_folder, "lib"), "-ltorch", "-ltorch_cpu", "-lc10"], check=True)
        plain = self.run_program("aliasing_cpp.py", library, preload=False)
        traced = self.run_program("aliasing_cpp.py", library)
        self.assertEqual((traced.returncode, traced.stdout), (0, plain.stdout), traced.stderr)
        trace, = self.traces()
        found = self.records(trace, "findings", expect=4)
        self.check_replay(trace, found)
        errors = {(f["op"], f["kind"], f["slot"], f["phase"]) for f in found if f["level"] == "error"}
        self.assertEqual({error for error in errors if error[1] != "stale-read"}, {
            ("aliasing_cpp::borrow", "freed-under-output", "output:0", "forward"),
            ("aliasing_cpp::borrow_gradient", "freed-under-output", "output:0", "backward")})
        # The allocator decides whether their results have changed when they are read.
        self.assertLessEqual({op for op, *_ in errors}, {"aliasing_cpp::borrow", "aliasing_cpp::borrow_gradient"})
        warned = {f["op"] for f in found if f["kind"] == "output-aliases-input"}
        self.assertIn("aliasing_cpp::hide", warned)
        # PyTorch's wheels keep the names of functions that they do not export.
        allocated, = [f["stacks"]["alloc"] for f in found if f["stacks"]["alloc"]]
        inside = [frame for frame in allocated if "libtorch_cpu.so+0x" in frame]
        self.assertTrue(inside)
        self.assertEqual([frame for frame in inside if frame.startswith("libtorch_cpu.so")], [])
        # From where Python called it on, the stack is that of Python.
        lines = [frame for frame in allocated if re.search(r" \(.*\.py:\d+\)$", frame)]
        self.assertEqual(lines, allocated[-len(lines):])
        program = os.path.join(HERE, "programs", "aliasing_cpp.py")
        called = [int(line.split(":")[-1].rstrip(")")) for line in lines if program in line]
        with open(program) as file:
            text = file.read().splitlines()
        self.assertEqual([text[line - 1].strip() for line in called], [
            "return ops.borrow_gradient(gradient * 1)", "(Borrow.apply(weight) * 3).sum().backward()",
            "result = float(case().detach())"])

    check_replay = Aliasing.check_replay


class Ranks(ProgramTest):
    def test_of_two_ranks_the_faulty_one_has_the_findings(self):
        done = self.run_program("aliasing_ranks.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        faulty, = [t for t in self.traces() if os.path.basename(t).startswith("1-")]
        for trace in self.traces():
            found = self.records(trace, "findings", expect=4 if trace == faulty else 0)
            # The first of a story is the one with the most stacks, whichever its step.
            errors = sorted((f["op"], f["kind"], f["step"]) for f in found if f["level"] == "error")
            wanted = [("Doubled", "freed-under-output", step) for step in range(3)]
            self.assertEqual(errors, wanted if trace == faulty else [])


class Patterns(ProgramTest):
    def test_the_diff_tells_that_an_op_takes_one_tensor_twice(self):
        for which in ("copy", "same"):
            done = self.run_program("alias_pattern.py", which, CONVTRACE_OUTPUT=which + ".ctrace")
            self.assertEqual(done.returncode, 0, done.stderr)
        report = os.path.join(self.folder, "report.json")
        compare = [SHOW + "-diff", "copy.ctrace", "same.ctrace", "--json", report]
        done = subprocess.run(compare, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        with open(report) as file:
            found, = json.load(file)["alias_patterns"]
        self.assertEqual({key: found[key] for key in ("kind", "run", "op", "slot", "other")}, {
            "kind": "alias-pattern-differs", "run": "cand", "op": "Sum", "slot": "input:0", "other": "input:1"})
        self.assertIn("alias-pattern-differs: input:0 and input:1 of op Sum", " ".join(done.stdout.split()))


if __name__ == "__main__":
    unittest.main()

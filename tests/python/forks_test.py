"""Programs that fork while they are traced: convtrace's messages, and Python's warnings about threads."""
import os
import re
import subprocess
import unittest

from preload_test import SHOW, ProgramTest

CHILDREN = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
model(torch.randn(2, 4)).sum().backward()
for _ in range(30):
    child = os.fork()
    if child == 0:
        model(torch.randn(2, 4)).sum().backward()
        sys.exit(0)
    assert os.waitpid(child, 0) == (child, 0)
model(torch.randn(2, 4)).sum().backward()
"""

# As CPython counts since 3.12, behind each os.fork() in the parent (warn_about_fork_with_threads).
COUNTED = """
import os, torch, warnings
warnings.simplefilter("error")  # Python 3.12 and later warn
torch.set_num_threads(1)
def threads():
    with open("/proc/self/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[17])
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
counts = set()
for _ in range(50):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    child = os.fork()
    if child == 0:
        os._exit(0)
    counts.add(threads())
    os.waitpid(child, 0)
print(counts)
"""


class ForkTest(ProgramTest):
    def run_text(self, text, **settings):
        program = os.path.join(self.folder, "program.py")
        with open(program, "w") as file:
            file.write(text)
        return self.run_program(program, **settings)

    def verified(self):
        trace, = self.traces()
        done = subprocess.run([SHOW, "verify", trace], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertRegex(done.stdout, r"^complete: .* 0 problems$")
        return int(re.search(r"([\d,]+) events", done.stdout).group(1).replace(",", ""))


class Children(ForkTest):
    def test_that_train_say_once_that_they_are_not_traced(self):
        done = self.run_text(CHILDREN)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("CT-1012", done.stderr)
        self.verified()


class Threads(ForkTest):
    def test_a_program_without_threads_has_one_behind_a_fork(self):
        done = self.run_text(COUNTED, preload=False)
        self.assertEqual((done.returncode, done.stdout), (0, "{1}\n"), done.stderr)
        done = self.run_text(COUNTED)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "{1}\n", ""))
        self.assertGreater(self.verified(), 50 * 5)


if __name__ == "__main__":
    unittest.main()

"""Programs that close, or take, descriptors that they do not own: their files are the same as without convtrace, and the trace
continues. tests/integration/core/meddler.cpp does the same at random."""
import os
import subprocess
import unittest

from preload_test import SHOW, ProgramTest

# Trains; `step` lets the writer come by.
PREFIX = """
import os, sys, time, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def step(count):
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).mean().backward()
        optimizer.step()
    time.sleep(1.2)

def numbers_of(ending):
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + number).endswith(ending):
                found.append(int(number))
        except OSError:
            pass
    return found

"""


class DescriptorTest(ProgramTest):
    def run_text(self, text, preload, **settings):
        """@return the finished process of the program, and its files."""
        folder = os.path.join(self.folder, "traced" if preload else "plain")
        os.mkdir(folder)
        program = os.path.join(folder, "program.py")
        with open(program, "w") as file:
            file.write(PREFIX + text)
        here = self.folder
        self.folder = folder
        if preload:
            settings.setdefault("CONVTRACE_OUTPUT", os.path.join(here, "traced.ctrace"))
        done = self.run_program(program, preload=preload, **settings)
        self.folder = here
        files = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                files[name] = file.read()
        return done, files

    def both(self, text, **settings):
        plain, plain_files = self.run_text(text, False)
        traced, traced_files = self.run_text(text, True, **settings)
        self.assertEqual((plain.returncode, traced.returncode), (0, 0), traced.stderr)
        self.assertEqual((traced.stdout, traced_files), (plain.stdout, plain_files))
        return traced.stderr

    def verify(self, says):
        done = subprocess.run([SHOW, "verify", os.path.join(self.folder, "traced.ctrace")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.assertIn(says, done.stdout)
        self.assertIn(" 0 problems", done.stdout)


class Closed(DescriptorTest):
    shared = True

    def test_twice(self):
        self.assertEqual(self.both("""
fd = os.open("/dev/null", os.O_RDONLY)
os.close(fd)
step(5)
try:
    os.close(fd)
except OSError as error:
    print(error)
with open("checkpoint.pt", "wb") as file:
    torch.save(model.state_dict(), file)
    file.flush()
    step(50)
print(len(torch.load("checkpoint.pt")))
"""), "")
        self.verify("complete")

    def test_all_as_a_daemon_does(self):
        self.assertEqual(self.both("""
step(5)
os.closerange(3, 1024)
log = open("train.log", "a", buffering=1)
for epoch in range(2):
    step(20)
    log.write("epoch %d\\n" % epoch)
log.close()
with open("checkpoint.pt", "wb") as file:
    torch.save(model.state_dict(), file)
    step(20)
"""), "")
        self.verify("complete")

    def test_taken_by_a_file_of_the_program(self):
        text = """
step(5)
log = os.path.join(os.path.dirname(os.getcwd()), "lines.log")
with open("checkpoint.pt", "wb") as file:
    for number in numbers_of(".ctrace") + numbers_of("lines.log"):
        os.dup2(file.fileno(), number)
    torch.save(model.state_dict(), file)
    file.flush()
    step(50)
"""
        self.assertEqual(self.both(text, CONVTRACE_LOG_FILE=os.path.join(self.folder, "lines.log"), CONVTRACE_LOG="info"), "")
        self.verify("complete")
        with open(os.path.join(self.folder, "lines.log")) as log:
            self.assertIn("CT-1105", log.read())

    def test_a_trace_that_is_gone_ends_with_one_line(self):
        text = """
step(5)
trace = os.getcwd() + ".ctrace"
if os.fork() == 0:  # the thread that has the trace begins anew
    os._exit(0)
os.wait()
os.closerange(3, 1024)
if os.path.exists(trace):
    os.remove(trace)
with open(trace, "w") as file:
    file.write("of the user")
step(20)
"""
        said = self.both(text)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("CT-1111 the program has closed the descriptor of the trace", said)
        with open(os.path.join(self.folder, "traced.ctrace")) as file:
            self.assertEqual(file.read(), "of the user")


class FullFromTheStart(DescriptorTest):
    def test_no_empty_file_stays(self):
        said = self.both("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nstep(3)\n")
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("CT-1101", said)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "traced.ctrace")))


if __name__ == "__main__":
    unittest.main()

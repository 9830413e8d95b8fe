"""sitecustomize: comes with PYTHONPATH, does nothing where there is nothing to do, hands over to the
file it hides, and leaves no trace in the program."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OBSERVER = os.path.join(ROOT, "interposer", "observer")


class Arrival(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def run_python(self, code, core="/nonexistent/libconvtrace-core.so", python=sys.executable):
        """@return (exit code, stdout + stderr) with the observer first, the test's folder second."""
        environment = dict(os.environ, PYTHONPATH=OBSERVER + ":" + self.folder,
                           PYTHONDONTWRITEBYTECODE="1")
        environment.pop("CONVTRACE_CORE", None)
        if core:
            environment["CONVTRACE_CORE"] = core
        done = subprocess.run([python, "-c", code], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        return done.returncode, done.stdout

    def fake_torch(self):
        self.write("torch/__init__.py", "import torch.late\nready = True\n")
        self.write("torch/late.py", "")

    def test_a_plain_program_sees_an_unchanged_interpreter(self):
        code = ("import sys; print([p for p in sys.path if p == %r],"
                 " [m for m in sys.modules if m.startswith('torch')])" % OBSERVER)
        self.assertEqual(self.run_python(code), (0, "[] []\n"))

    def test_without_the_engine_nothing_is_loaded(self):
        code = "import sys; print('convtrace_observer' in sys.modules, len(sys.meta_path))"
        code_plain = "import sys; print(False, len(sys.meta_path))"
        plain = subprocess.check_output([sys.executable, "-c", code_plain],
                                        universal_newlines=True)
        self.assertEqual(self.run_python(code, core=None), (0, plain))

    def test_the_hidden_sitecustomize_runs_and_is_the_module(self):
        self.write("sitecustomize.py", "import builtins\nbuiltins.ran = __file__\n")
        code = "import sys; print(ran == sys.modules['sitecustomize'].__file__, '%s' in ran)"
        self.assertEqual(self.run_python(code % self.folder), (0, "True True\n"))

    def test_errors_of_the_hidden_sitecustomize_are_its_own(self):
        self.write("sitecustomize.py", "import no_such_module\n")
        code, output = self.run_python("print('on')")
        self.assertIn("no_such_module", output)
        self.write("sitecustomize.py", "raise ValueError('theirs')\n")
        code, output = self.run_python("print('on')")
        self.assertEqual(code, 0)
        self.assertIn("ValueError: theirs", output)

    def test_torch_is_imported_whole_before_the_observer_starts(self):
        self.fake_torch()
        code = ("import convtrace_observer.arrival as a, sys;"
                "a._start = lambda torch: print(torch.ready, sys.modules['torch'] is torch);"
                "import torch, torch.late; print(len(sys.meta_path))")
        plain = subprocess.check_output(
            [sys.executable, "-c", "import sys; print(len(sys.meta_path))"],
            universal_newlines=True)
        self.assertEqual(self.run_python(code), (0, "True True\n" + plain))

    def test_a_missing_engine_stays_silent(self):
        self.fake_torch()
        self.assertEqual(self.run_python("import torch; print(torch.ready)"), (0, "True\n"))

    def test_an_import_that_fails_may_be_tried_again(self):
        self.write("torch/__init__.py", "import os\nif 'GO' not in os.environ: raise OSError(1)\n")
        code = ("import convtrace_observer.arrival as a, os\n"
                "a._start = lambda torch: print('started')\n"
                "try:\n import torch\nexcept OSError:\n os.environ['GO'] = '1'\n"
                "import torch\n")
        self.assertEqual(self.run_python(code), (0, "started\n"))

    def test_a_program_that_looks_for_torch_first(self):
        self.fake_torch()
        code = ("import convtrace_observer.arrival as a, importlib.util, sys;"
                "a._start = lambda torch: print('started');"
                "print(importlib.util.find_spec('torch') is not None); import torch")
        self.assertEqual(self.run_python(code), (0, "True\nstarted\n"))

    def test_absent_torch_is_absent(self):
        code, output = self.run_python("import sys; sys.path[:] = []\nimport torch")
        self.assertEqual(code, 1)
        self.assertIn("No module named 'torch'", output)
        self.assertNotIn("observer", output)

    def test_a_late_start_finds_torch_imported(self):
        self.fake_torch()
        code = ("import torch, convtrace_observer.arrival as a;"
                "a._start = lambda torch: print('started'); a.install()")
        self.assertEqual(self.run_python(code), (0, "started\n"))

    def test_a_spawned_child_is_observed_again_and_finds_its_modules(self):
        self.write("job.py", "import multiprocessing, sys\n"
                   "def f(q): q.put('convtrace_observer' in sys.modules)\n"
                   "if __name__ == '__main__':\n"
                   " c = multiprocessing.get_context('spawn'); q = c.SimpleQueue()\n"
                   " p = c.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join()\n")
        code = "import runpy; runpy.run_path('%s/job.py', run_name='__main__')" % self.folder
        self.assertEqual(self.run_python(code), (0, "True\n"))

    def test_python_2_runs_the_hidden_file_and_nothing_of_ours(self):
        python = working_interpreter("python2.7", "python2")
        if python is None:
            self.skipTest("no Python 2 on this machine")
        self.write("sitecustomize.py", "import sys\nsys.ran = 1\n")
        code = "import sys; print(sys.ran, 'convtrace_observer' in sys.modules)"
        self.assertEqual(self.run_python(code, python=python), (0, "(1, False)\n"))


def working_interpreter(*names):
    for path in filter(None, map(shutil.which, names)):
        if subprocess.call([path, "-c", "pass"], stderr=subprocess.DEVNULL) == 0:
            return path
    return None


if __name__ == "__main__":
    unittest.main()

"""The magic of notebooks: a notebook runs in a real kernel, which trains under the real preload library."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from preload_test import BUILD, PRELOAD, SHOW, SKIPPED

try:
    import ipykernel  # noqa: F401
    import nbclient
    import nbformat
except ImportError as error:
    print("skipped: %s lacks %s" % (sys.executable, error.name))
    sys.exit(SKIPPED)

TRAIN = """
import torch

def train(fault):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (model(torch.randn(4, 8)) * (1 + fault if step else 1)).square().mean().backward()
        optimizer.step()
"""


class NotebookTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.environment = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k != "LD_PRELOAD"}
        cls.environment.update(PYTHONPATH=os.path.join(BUILD, "share", "convtrace", "python"), OMP_NUM_THREADS="1",
                               IPYTHONDIR=cls.folder)

    def notebook(self, *cells, **settings):
        """Runs the cells in a new kernel. @return the outputs of each cell."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        client = nbclient.NotebookClient(notebook, timeout=300, allow_errors=True)
        client.execute(cwd=self.folder, env={**self.environment, **settings})
        return [cell.outputs for cell in notebook.cells]

    def only(self, outputs):
        self.assertEqual(len(outputs), 1, outputs)
        return outputs[0]

    def program(self, *arguments):
        return subprocess.run([SHOW, *arguments], cwd=self.folder, stdout=subprocess.PIPE, universal_newlines=True).stdout


class Traces(NotebookTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, fault in (("base", "0"), ("cand", "1e-3"), ("nan", "float('nan')")):
            with open(os.path.join(cls.folder, "train.py"), "w") as file:
                file.write(TRAIN + "train(%s)\n" % fault)
            subprocess.run([sys.executable, "train.py"], cwd=cls.folder, check=True,
                           env={**cls.environment, "LD_PRELOAD": PRELOAD, "CONVTRACE_OUTPUT": name + ".ctrace"})


class Magic(Traces):
    def test_what_the_programs_print_and_verdicts_are_no_errors(self):
        loaded, info, norms, nan, same, diverged = self.notebook(
            "%load_ext convtrace", "%convtrace info base.ctrace", "path = 'cand.ctrace'\n%convtrace norms --json {path}",
            "%convtrace nan nan.ctrace", "%convtrace diff base.ctrace base.ctrace", "%convtrace diff base.ctrace cand.ctrace")
        self.assertEqual(loaded, [])
        for outputs, arguments in ((info, ["info", "base.ctrace"]), (norms, ["show", "--norms", "--json", "cand.ctrace"]),
                                   (nan, ["show", "--nan", "nan.ctrace"])):
            output = self.only(outputs)
            self.assertEqual((output.name, output.text), ("stdout", self.program(*arguments)))
            self.assertGreater(len(output.text), 100)
        for outputs, verdict, cand in (same, "IDENTICAL", "base.ctrace"), (diverged, "DIVERGED at step 1", "cand.ctrace"):
            data = self.only(outputs).data
            self.assertEqual(data["text/plain"], self.program("diff", "base.ctrace", cand))
            self.assertIn(verdict, data["text/plain"])
            page = data["text/html"]
            self.assertTrue(page.startswith("<iframe ") and page.endswith("</iframe>"), page[:100])
            self.assertIn("&lt;h1", page)
            self.assertIn(verdict, page)
            # Nothing of the page ends the attribute that it is in.
            self.assertEqual((page.count('"') % 2, page.count("<"), page.count(">")), (0, 2, 2))

    def test_errors_are_those_of_the_programs(self):
        for cell, message in (("%convtrace info none.ctrace", "convtrace: CT-2101 none.ctrace: "),
                              ("%convtrace diff base.ctrace none.ctrace", "convtrace-diff: CT-2101"),
                              ("%convtrace diff base.ctrace", "CT-2001"),
                              ("%convtrace norms --stepz 1 base.ctrace", "CT-2001"),
                              ("%convtrace", "%convtrace info|norms|nan TRACE"),
                              ("%convtrace show base.ctrace", "%convtrace diff BASE CAND")):
            with self.subTest(cell):
                _, outputs, after = self.notebook("%load_ext convtrace", cell, "print('goes on')")
                self.assertIn("UsageError: ", "".join(output.get("text", "") for output in outputs))
                self.assertIn(message, "".join(output.get("text", "") for output in outputs))
                self.assertEqual(self.only(after).text, "goes on\n")


class Progress(Traces):
    def test_the_report_stands_where_its_progress_was(self):
        slow = ("import time, convtrace.notebook as magic\nreal = magic.reports.report_of\n"
                "magic.reports.report_of = lambda *all: (time.sleep(1.5), real(*all))[1]\n"
                "said = []\nfrom unittest import mock\nplace = mock.Mock(update=lambda data, raw: said.append(data))\n"
                "shown = magic.display\nmagic.display = lambda data, **_: (said.append(data), place)[1]\n")
        _, printed = self.notebook("%load_ext convtrace\n" + slow, "%convtrace diff base.ctrace cand.ctrace\n"
                                   "print(said[0], len(said), sorted(said[-1]))")
        self.assertEqual(self.only(printed).text, "{'text/plain': 'comparing, 1 s'} 2 ['text/html', 'text/plain']\n")
        _, outputs = self.notebook("%load_ext convtrace\n" + slow + "magic.display = shown", "%convtrace diff base.ctrace cand.ctrace")
        self.assertIn("DIVERGED", self.only(outputs).data["text/plain"])


class TracedKernel(NotebookTest):
    def test_a_kernel_that_is_preloaded_is_traced_and_read_while_it_is_open(self):
        trained, said, listed, info = self.notebook(
            TRAIN + "train(0)", "%load_ext convtrace", "import glob\npath, = glob.glob('nb-*.ctrace')",
            "import time\ntime.sleep(2)\n%convtrace info {path}", LD_PRELOAD=PRELOAD, CONVTRACE_OUTPUT="nb-%p.ctrace")
        self.assertEqual((trained, said, listed), ([], [], []))
        self.assertEqual([output.name for output in info], ["stdout", "stderr"])
        self.assertRegex(info[0].text, "state +unclosed\n(.*\n)*steps +0 to 2\n")
        self.assertIn("CT-2102", info[1].text)
        trace, = (name for name in os.listdir(self.folder) if name.endswith(".ctrace"))
        self.assertRegex(self.program("info", trace), "state +complete\n")  # the kernel has closed it


if __name__ == "__main__":
    unittest.main()

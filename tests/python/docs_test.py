"""Every command of the documentation, as a reader would type it. In docs/*.md a block ```sh is run by
bash, from top to bottom of the page, in a folder of the page's own; "exit=N" says that its last command
ends so. A block ```python file=NAME or ```toml file=NAME is what the reader saves under that name. Other
blocks (```text: what is printed; ```sh elsewhere: for another machine) are not run."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CONVTRACE_BUILD") or os.path.join(ROOT, "build", "release")
DOCS = os.path.join(ROOT, "docs")
# What a test machine lacks: as many processes as asked for, with the variables by which they know their rank.
SRUN = """#!/bin/bash
for word; do
  shift
  case $word in --ntasks=*) tasks=${word#*=};; --*) ;; *) set -- "$word" "$@"; break;; esac
done
for ((rank = 0; rank < tasks; ++rank)); do SLURM_PROCID=$rank SLURM_NTASKS=$tasks "$@" & done
wait
"""
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

if not os.path.exists(os.path.join(BUILD, "lib", "libconvtrace.so")):
    print("skipped: nothing is built in " + BUILD)
    sys.exit(77)


class Page:
    """A test of one page of docs/, for a TestCase that names it."""
    page = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.symlink(os.path.join(ROOT, "tools"), os.path.join(self.folder, "tools"))
        os.mkdir(os.path.join(self.folder, "bin"))
        os.symlink(sys.executable, os.path.join(self.folder, "bin", "python"))
        with open(os.path.join(self.folder, "bin", "srun"), "w") as file:
            file.write(SRUN)
        os.chmod(file.name, 0o755)
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "PYTHONPATH")}
        path = os.pathsep.join([os.path.join(BUILD, "bin"), os.path.dirname(sys.executable),
                                os.path.join(self.folder, "bin"), os.environ["PATH"]])
        self.environment = dict(kept, PATH=path, OMP_NUM_THREADS="2", SLURM_JOB_ID="17",
                                CONVTRACE_TREE=BUILD, PYTHONDONTWRITEBYTECODE="1")
        # Not a setting of convtrace's: where this page's reader has installed it.
        self.environment["TREE"] = self.environment.pop("CONVTRACE_TREE")

    def test_page(self):
        with open(os.path.join(DOCS, self.page)) as file:
            text = file.read()
        ran = 0
        for kind, options, body in BLOCK.findall(text):
            options = dict(o.split("=", 1) if "=" in o else (o, "") for o in options.split())
            if "file" in options:
                with open(os.path.join(self.folder, options["file"]), "w") as file:
                    file.write(body)
            elif kind == "sh" and "elsewhere" not in options:
                done = subprocess.run(["bash", "-eu", "-c", body], cwd=self.folder, env=self.environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
                self.assertEqual(done.returncode, int(options.get("exit", 0)), "%s:\n%s\n%s" % (self.page, body,
                                                                                             done.stdout))
                for line in options.get("says", "").split("|"):
                    self.assertIn(line, done.stdout)
                ran += 1
        self.assertGreater(ran, 0, "no command of %s was run" % self.page)


class Tutorial(Page, unittest.TestCase):
    page = "tutorial.md"


class Upgrade(Page, unittest.TestCase):
    page = "walkthrough-upgrade.md"


class NaN(Page, unittest.TestCase):
    page = "walkthrough-nan.md"


class CustomOp(Page, unittest.TestCase):
    page = "walkthrough-custom-op.md"


class Recipes(Page, unittest.TestCase):
    page = "recipes.md"


class Troubleshooting(Page, unittest.TestCase):
    page = "troubleshooting.md"


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        for page in os.listdir(DOCS):
            with open(os.path.join(DOCS, page)) as file:
                for target in re.findall(r"\]\(([^)#]+)[^)]*\)", file.read()):
                    if "://" not in target:
                        self.assertTrue(os.path.exists(os.path.join(DOCS, target)), (page, target))


if __name__ == "__main__":
    unittest.main()

"""Every command of the documentation, as a reader would type it, and every link.

In README.md and docs/*.md a block ```sh is run by bash, from top to bottom of the page, in a folder of the
page's own. "exit=N" is the exit code of its last command, "says=TEXT|TEXT" (to the end of the line) is in what
it prints. A block ```python file=NAME or ```toml file=NAME is what the reader saves under that name. A block
```text printed was printed by the page's commands: its lines, but for "...", are among theirs when numbers and
bytes of memory are left out. Other blocks (```text; ```sh elsewhere: for another machine) are not run."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CONVTRACE_BUILD") or os.path.join(ROOT, "build", "release")
README_LINES = 130
ARCHITECTURE_WORDS = 2500
# A stand-in for srun, which a test machine lacks: it starts the processes with the variables that tell their rank.
SRUN = """#!/bin/bash
for word; do
  shift
  case $word in --ntasks=*) tasks=${word#*=};; --*) ;; *) set -- "$word" "$@"; break;; esac
done
for ((rank = 0; rank < tasks; ++rank)); do SLURM_PROCID=$rank SLURM_NTASKS=$tasks "$@" & done
wait
"""
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"0x[0-9a-f]+|-?\d[\d.,]*(e[-+]?\d+)?")
LINK = re.compile(r"\]\(([^)\s#]*)#?([^)\s]*)\)")

if not os.path.exists(os.path.join(BUILD, "lib", "libconvtrace.so")):
    print("skipped: nothing is built in " + BUILD)
    sys.exit(77)


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def pages():
    """The pages of the repository, as paths from its root."""
    found = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "format/FORMAT.md", "tests/fakecuda/README.md",
             "tests/unit/cupti/rules/README.md"]
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    return found


def sources():
    for top in "cupti", "format", "interposer", "reader", "tests", "tools":
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            yield from (os.path.join(folder, name) for name in names
                        if name.endswith((".h", ".c", ".cpp", ".cu", ".py")) and name != "docs_test.py")


def headings(page):
    return re.findall(r"^#+ (.*)$", re.sub(BLOCK, "", read(page)), re.MULTILINE)


def anchors(page):
    """@return the anchors that GitHub makes of the page's headings."""
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)]


def shapes(text):
    """@return the lines of a report without its numbers."""
    return {re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip() for line in text.splitlines()}


class Page:
    """A test of one page, for a TestCase that names it. The traces in `diverged` are those of two runs that the page
    compares: what convtrace-diff says to do next is done, too, with what the page changes between the runs put back."""
    page = None
    diverged = None

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
        ran, said, printed = 0, "", ""
        saved = {}
        for kind, options, body in BLOCK.findall(read(self.page)):
            options, _, says = options.partition("says=")
            options = dict(o.split("=", 1) if "=" in o else (o, "") for o in options.split())
            if "file" in options:
                saved[options["file"]] = body
                with open(os.path.join(self.folder, options["file"]), "w") as file:
                    file.write(body)
            elif kind == "sh" and "elsewhere" not in options:
                done = subprocess.run(["bash", "-eu", "-c", body], cwd=self.folder, env=self.environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
                self.assertEqual(done.returncode, int(options.get("exit", 0)), "%s:\n%s\n%s" % (self.page, body,
                                                                                             done.stdout))
                for line in says.split("|"):
                    self.assertIn(line, done.stdout)
                ran += 1
                said += done.stdout
            elif kind == "text" and "printed" in options:
                printed += body
        self.assertGreater(ran, 0, "no command of %s was run" % self.page)
        self.assertEqual(shapes(printed) - shapes(said) - {"", "..."}, set())
        if self.diverged:
            self.check_next(saved)

    def shell(self, script):
        return subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)

    def report(self, base, cand):
        done = self.shell("convtrace-diff %s %s --json report.json" % (base, cand))
        self.assertEqual(done.returncode, 1, done.stdout)
        with open(os.path.join(self.folder, "report.json")) as file:
            return json.load(file)

    def check_next(self, saved):
        """Follows the block, which says when the baseline's files are put back, and when the candidate's.

        @param saved  the files of the page as the baseline had them
        """
        told = self.report(*self.diverged)
        self.assertTrue(told["next"])
        folder = pathlib.Path(self.folder)
        changed = {name: (folder / name).read_text() for name in saved}
        parts = "\n".join(told["next"]).split("# then the candidate's again\n")
        if len(parts) == 1:  # one command line tells the runs apart
            parts = ["", parts[0]]
        for part, state in zip(parts, (saved, changed)):
            for name, body in state.items():
                (folder / name).write_text(body)
            done = self.shell(part)
            self.assertEqual(done.returncode, 1 if part is parts[-1] else 0, part + done.stdout)
        sharper = self.report("root-base.ctrace", "root-cand.ctrace")
        told, root = told["root"], sharper["root"]
        same = all(told[key] == root[key] for key in ("step", "phase", "scope", "slot"))
        self.assertTrue(same or root["op"], sharper["headline"])
        self.assertTrue(root["elements"] or (root["consumer"] or {}).get("elements"), sharper["headline"])
        self.assertEqual(sharper["next"], [])


class Readme(Page, unittest.TestCase):
    page = "README.md"
    diverged = "base.ctrace", "candidate.ctrace"

    def test_it_is_short(self):
        self.assertLessEqual(len(read(self.page).splitlines()), README_LINES)


class Tutorial(Page, unittest.TestCase):
    page = "docs/tutorial.md"
    diverged = "base.ctrace", "candidate.ctrace"


class Upgrade(Page, unittest.TestCase):
    page = "docs/walkthrough-upgrade.md"
    diverged = "old.ctrace", "new.ctrace"

    def setUp(self):
        super().setUp()
        asked = self.shell("python -m pip download -q --no-deps --dest downloads transformers==5.8.0")
        if asked.returncode:
            self.skipTest("no registry of packages: " + asked.stdout[-200:])


class NaN(Page, unittest.TestCase):
    page = "docs/walkthrough-nan.md"


class CustomOp(Page, unittest.TestCase):
    page = "docs/walkthrough-custom-op.md"


class Agents(Page, unittest.TestCase):
    page = "docs/agents.md"

    def setUp(self):
        super().setUp()
        body, = (body for _, options, body in BLOCK.findall(read("README.md")) if "file=train.py" in options)
        pathlib.Path(self.folder, "train.py").write_text(body)


class Recipes(Page, unittest.TestCase):
    page = "docs/recipes.md"


class Troubleshooting(Page, unittest.TestCase):
    page = "docs/troubleshooting.md"

    def test_every_message_has_a_row(self):
        numbers = self.of_traced_programs() + self.of_commands()
        self.assertGreater(len(numbers), 70)
        self.assertEqual(len(set(numbers)), len(numbers))
        self.assertEqual(re.findall(r"^\| `CT-(\d{4})` \|", read(self.page), re.MULTILINE), sorted(numbers))

    def test_numbers_in_python_and_c_are_on_the_list(self):
        said = {path: set(re.findall(r"CT-(\d{4})", read(path))) for path in sources()
                if path.endswith((".py", ".c")) and "/tests/" not in path}
        self.assertIn("1301", set().union(*said.values()))
        self.assertIn("2202", set().union(*said.values()))
        exporter = read("tools/python/export.py")
        said["exporter"] = set(re.findall(r"\b2\d{3}\b", exporter[:exporter.index("def ")]))
        self.assertEqual(len(said["exporter"]), 7)
        listed = set(self.of_traced_programs() + self.of_commands())
        for path, numbers in said.items():
            self.assertLessEqual(numbers, listed, path)

    @staticmethod
    def of_traced_programs():
        return re.findall(r"\{(\d{4}), k[A-Z]", read("format/base/messages.h"))

    @staticmethod
    def of_commands():
        return re.findall(r"\bk[A-Z]\w+ = (\d{4}),", read("tools/common/complaints.h"))


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        for page in pages():
            for target, anchor in LINK.findall(read(page)):
                if "://" in target:
                    continue
                path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), (page, target))
                if anchor:
                    self.assertIn(anchor, anchors(path), (page, target))

    def test_what_the_sources_name_is_there(self):
        files = "".join(read(path) for path in sources())
        self.assertIn("docs/recording.md", files)
        for page, heading in set(re.findall(r'(docs/[a-z0-9/-]+\.md)(?: "([^"]+)")?', files)):
            self.assertTrue(os.path.exists(os.path.join(ROOT, page)), page)
            if heading:
                self.assertIn(heading, headings(page), page)

    def test_the_architecture_is_read_in_one_sitting(self):
        self.assertLessEqual(len(read("docs/architecture.md").split()), ARCHITECTURE_WORDS)

    def test_every_page_is_linked(self):
        linked = {os.path.normpath(os.path.join(os.path.dirname(page), target))
                  for page in pages() for target, _ in LINK.findall(read(page))}
        self.assertEqual([page for page in pages() if page.startswith("docs/") and page not in linked], [])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Puts the pages of the site together: stage.py FOLDER.

Pages keep their places, so that links between them work; a link to a source file becomes its text. Marks for the tests of
documents (docs_test.py) follow the language of a block of code, where a renderer takes them for options: they are removed
here.
"""
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "format/FORMAT.md", "tests/fakecuda/README.md")
API = """# Traces in Python

`import convtrace` reads traces and runs the comparisons. It comes with the wheel; without it, add the build's `share/convtrace/python` to
`PYTHONPATH`.

""" + "\n\n".join("::: convtrace." + name for name in (
    "reports.diff", "reports.check", "reports.origin", "reports.Report", "reports.Failed", "trace.Trace", "trace.Problem",
    "records.NotATrace", "hashes.concat_hash", "notebook", "pytest_plugin")) + "\n"


def without_sources(text, folder, target):
    """@param folder  of the page, relative to both trees. @return the page without links to files that the site lacks."""
    def link(match):
        words, place = match.group(1), match.group(2).split("#")[0]
        is_source = place and (ROOT / folder / place).exists() and not (target / folder / place).is_file()
        return words if is_source else match.group(0)

    return re.sub(r"\[([^]]+)\]\(([^):]+)\)", link, text)


def plain(text):
    """@return the page with only the language left after the fence of each block of code."""
    return re.sub(r"^(\s*```\w+)[ ].*$", r"\1", text, flags=re.M)


def main():
    target = pathlib.Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target / "docs")
    for page in PAGES:
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, target / page)
    for page in target.rglob("*.md"):
        page.write_text(without_sources(plain(page.read_text()), page.parent.relative_to(target), target))
    (target / "python-api.md").write_text(API)


if __name__ == "__main__":
    main()

"""The table of results: a row for each suite, as docs/lab/suites.md has it."""
import subprocess

COLUMNS = ("suite", "version", "tests from", "tests", "plain: passed/failed", "traced", "differences", "flaky", "CPU", "trace",
           "findings of level error", "observer", "date, commit")
HEAD = "| %s |\n|%s" % (" | ".join(COLUMNS), "---|" * len(COLUMNS))


def commit(root):
    """@return the commit that is checked out, with a mark where files of the product differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "cupti", "format", "interposer", "reader", "tools/check", "tools/cli")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def size(count):
    return "%.1f MB" % (count / 1e6) if count < 1e7 else "%.0f MB" % (count / 1e6)


def errors(found):
    """@return how often each word was said of which findings."""
    if not found:
        return "none"
    said = {}
    for error in found:
        said.setdefault((error["kind"], error["word"]), []).append(error)
    return "; ".join("%d %s: **%s**" % (len(places), kind, word) for (kind, word), places in sorted(said.items()))


def observer(result):
    if result["alive"]:
        return "alive"
    return "**%s**" % (", ".join(number for number in ("CT-1301", "CT-1302") if number in result["messages"]) or "recorded nothing")


def row(result):
    differences = "**%s**" % "; ".join(result["ended"]) if result["ended"] else str(len(result["differences"]) or "none")
    cells = (result["suite"], result["version"], result["tests_from"], result["tests"], result["plain"], result["traced"], differences,
             len(result["flaky"]) or "none", "%.2f" % (result["traced_s"] / result["plain_s"]),
             size(result["bytes"]) + (" **broken**" if result["broken"] else ""), errors(result["errors"]), observer(result),
             "%s, %s" % (result["date"], result["commit"]))
    return "| %s |" % " | ".join(str(cell).replace("|", "\\|") for cell in cells)


def record(path, result):
    """Puts the row into the page, at the place of the suite's older row or at the end of the table."""
    lines = path.read_text().splitlines()
    first = lines.index(HEAD.splitlines()[0]) + 2
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    rows = {line.split("|")[1].strip(): line for line in lines[first:end]}
    rows[result["suite"]] = row(result)
    path.write_text("\n".join(lines[:first] + list(rows.values()) + lines[end:]) + "\n")

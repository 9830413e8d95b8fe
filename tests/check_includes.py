#!/usr/bin/env python3
"""Checks the include direction of the folders, and that code which lives in other people's processes cannot end them.

usage: check_includes.py ROOT       prints one line per violation; exit code 1 if there is any
       check_includes.py --self-test
"""

import pathlib
import re
import sys
import tempfile

SOURCES = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".S"}
# Folder -> project folders whose headers it may include. tests may include everything.
ALLOWED = {
    "format": {"format"},
    "reader": {"reader", "format"},
    "cupti": {"cupti", "format"},
    "interposer": {"interposer", "cupti", "format"},
    "tools": {"tools", "reader", "format"},
}
PROJECT_FOLDERS = {*ALLOWED, "tests"}
CUDA_HEADER = re.compile(r"(cuda|cupti|cub/|nvrtc|nvtx|vector_types|fatbinary)")
CUDA_FOLDERS = ("cupti", "tests/fakecuda", "tests/gpu", "tests/integration/programs", "tests/unit/cupti", "tests/bench")
# The libraries made of these folders are loaded into programs that are not ours.
INJECTED = {"format", "cupti", "interposer"}
FORBIDDEN = {
    r"\b(abort|exit|_exit|_Exit|quick_exit|assert|setlocale|system)\s*\(": "ends or changes the host program",
    r"\bstd::(terminate|set_terminate|cout|cerr|clog|cin)\b": "ends or writes into the host program",
    r"\bthrow\b": "an exception could reach the host program",
    r"\b(printf|puts|putchar)\s*\(": "writes to the host program's stdout",
    r"#\s*include\s*<(iostream|cassert|assert\.h|locale|clocale)>": "is for programs, not for code inside one",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def without_comments_and_strings(text):
    """The text with comments and literals blanked, line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def violations(root):
    for path in sorted(file for folder in PROJECT_FOLDERS for file in (root / folder).rglob("*")):
        name = path.relative_to(root).as_posix()
        folder = name.split("/")[0]
        if path.suffix not in SOURCES:
            continue
        text = path.read_text(errors="replace")

        def at(position):
            return f"{name}:{text.count(chr(10), 0, position) + 1}"

        for match in INCLUDE.finditer(text):
            kind, header = match.groups()
            target = header.split("/")[0]
            if kind == '"' and folder in ALLOWED:
                if target not in PROJECT_FOLDERS:
                    yield f'{at(match.start())}: "{header}" does not begin at the root of the repository'
                elif target not in ALLOWED[folder]:
                    yield f'{at(match.start())}: {folder} must not include "{header}"'
            if CUDA_HEADER.match(header) and target != "cupti" and not name.startswith(CUDA_FOLDERS):
                yield f"{at(match.start())}: <{header}>: CUDA headers are for cupti/ only"
        if folder in INJECTED:
            code = without_comments_and_strings(text)
            for pattern, why in FORBIDDEN.items():
                for match in re.finditer(pattern, code):
                    yield f"{at(match.start())}: `{match.group().strip(' (')}` {why}"


def self_test():
    """Each rule must find its violation, and nothing in a clean file."""
    cases = {
        "format/a.h": ('#include "reader/b.h"\n', 1),
        "reader/a.h": ('#include "cupti/b.h"\n#include "reader/c.h"\n', 1),
        "tools/a.h": ('#include "interposer/core/x.h"\n', 1),
        "reader/b.h": ('#include "near.h"\n', 1),
        "reader/c.cpp": ("#include <cuda.h>\n", 1),
        "cupti/a.cpp": ('#include <cuda.h>\n#include <cupti.h>\n#include "format/a.h"\n', 0),
        "cupti/b.cpp": ("void f() { abort(); }\n", 1),
        "interposer/a.cpp": ('// never exit(1)\nconst char* s = "throw";\nint fprintf(int);\n', 0),
        "format/b.cpp": ("#include <iostream>\nvoid g() { std::cout << 1; throw 1; }\n", 3),
        "tests/a.cpp": ('#include "interposer/core/x.h"\nvoid f() { abort(); }\n', 0),
    }
    failed = 0
    for name, (text, expected) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True)
            path.write_text(text)
            found = list(violations(pathlib.Path(folder)))
            if len(found) != expected:
                print(f"{name}: expected {expected} violations, found {found}")
                failed = 1
    return failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

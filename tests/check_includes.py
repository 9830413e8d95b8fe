#!/usr/bin/env python3
"""Checks which rooms (folders) include or import which, how large they are, and that code which lives in other people's processes cannot end them.

usage: check_includes.py ROOT       prints one line per violation; exit code 1 if there is any
       check_includes.py --self-test
"""

import pathlib
import re
import sys
import tempfile

SOURCES = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".S", ".py"}
# Room -> rooms whose headers it includes; format/base and format/model are for all. From the ground up: a room
# includes only what stands above it here. tests may include everything.
ROOMS = {
    "format/base": "",
    "format/model": "format/base",
    "format/findings/common": "",
    "format/findings/collectives": "format/findings/common",
    "format/findings/memory": "format/findings/common",
    "format/findings/ops": "format/findings/common",
    "format/findings": "format/findings/collectives format/findings/memory format/findings/ops",
    "format/schema": "",
    "format/file/columns": "format/schema",
    "format/file": "format/file/columns format/schema",
    "format/settings": "",
    "format/values": "",
    "reader/columns": "format/file format/file/columns format/schema",
    "reader": "format/file format/file/columns format/schema format/values reader/columns",
    "cupti/abi": "",
    "cupti/calls": "",
    "cupti/driver": "",
    "cupti/memory": "cupti/driver",
    "cupti/kernels": "cupti/calls cupti/driver cupti/memory format/settings",
    "cupti/graphs": "cupti/calls cupti/driver cupti/kernels",
    "cupti/stats/tile": "",
    "cupti/stats/thread": "cupti/stats/tile",
    "cupti/stats/cpu": "cupti/stats/thread cupti/stats/tile",
    "cupti/stats/kernels": "cupti/stats/thread cupti/stats/tile",
    "cupti/stats": "cupti/stats/cpu cupti/stats/kernels cupti/stats/thread cupti/stats/tile",
    "cupti/values": "cupti/driver cupti/kernels cupti/memory cupti/stats cupti/stats/cpu cupti/stats/kernels "
        "cupti/stats/tile format/findings/memory format/settings format/values",
    "cupti/gate": "cupti/abi cupti/calls cupti/driver cupti/graphs cupti/kernels cupti/memory cupti/values format/settings",
    "cupti/observe": "cupti/calls cupti/driver cupti/gate cupti/memory",
    "cupti": "cupti/abi cupti/driver cupti/gate cupti/kernels cupti/observe cupti/values",
    "interposer/abi": "",
    "interposer/core/runtime": "interposer/abi",
    "interposer/core/control": "cupti/kernels format/file format/settings interposer/core/runtime",
    "interposer/core/queue": "cupti/stats cupti/stats/tile interposer/core/runtime",
    "interposer/core/memory": "cupti/memory interposer/abi interposer/core/queue interposer/core/runtime",
    "interposer/core/values": "cupti/stats/tile cupti/values format/file format/settings "
        "format/values interposer/core/runtime",
    "interposer/core/observer": "cupti cupti/kernels cupti/memory cupti/stats cupti/stats/cpu cupti/stats/tile format/findings/ops "
        "interposer/abi interposer/core/control interposer/core/memory interposer/core/runtime interposer/core/values",
    "interposer/core/nccl": "cupti cupti/abi cupti/memory interposer/core/control interposer/core/memory interposer/core/runtime",
    "interposer/core/python": "interposer/abi interposer/core/memory",
    "interposer/core/writer": "cupti/kernels format/file format/findings format/settings "
        "interposer/core/control interposer/core/queue interposer/core/runtime",
    "interposer/core": "cupti cupti/abi cupti/driver cupti/memory format/settings interposer/abi interposer/core/control "
        "interposer/core/memory interposer/core/nccl interposer/core/observer interposer/core/python "
        "interposer/core/queue interposer/core/runtime interposer/core/writer",
    "interposer/preload": "cupti/abi format/settings",
    "interposer/observer/convtrace_observer/base": "",
    "interposer/observer/convtrace_observer/again": "interposer/observer/convtrace_observer/base",
    "interposer/observer/convtrace_observer/calls":
        "interposer/observer/convtrace_observer/again interposer/observer/convtrace_observer/base",
    "interposer/observer/convtrace_observer/facts":
        "interposer/observer/convtrace_observer/base interposer/observer/convtrace_observer/calls",
    "interposer/observer/convtrace_observer/compiled": "interposer/observer/convtrace_observer/base",
    "interposer/observer/convtrace_observer/training":
        "interposer/observer/convtrace_observer/base interposer/observer/convtrace_observer/facts",
    "interposer/observer/convtrace_observer": "interposer/observer/convtrace_observer/base interposer/observer/convtrace_observer/calls "
        "interposer/observer/convtrace_observer/compiled interposer/observer/convtrace_observer/facts "
        "interposer/observer/convtrace_observer/training",
    "interposer/observer": "",
    "tools/common": "format/settings",
    "tools/demo_gpt": "",
    "tools/python": "",
    "tools/python/convtrace": "",
    "tools/python/convtrace/exports": "tools/python/convtrace",
    "tools/python/convtrace/jobs": "tools/python/convtrace",
    "tools/site_pages": "",
    "tools/report": "format/file tools/common",
    "tools/trace/model": "tools/common",
    "tools/trace/names": "format/settings tools/common tools/trace/model",
    "tools/trace/flow": "tools/common tools/trace/model",
    "tools/trace/read": "format/file reader tools/common tools/trace/model",
    "tools/diff/model": "tools/trace/model tools/trace/names",
    "tools/diff/compare": "tools/common tools/trace/model tools/trace/names",
    "tools/diff/align": "tools/diff/compare tools/diff/model tools/trace/model",
    "tools/diff/births": "tools/diff/align tools/diff/compare",
    "tools/diff/flow": "",
    "tools/diff/facts": "reader tools/common tools/diff/model tools/trace/model",
    "tools/diff/read": "format/file format/file/columns reader tools/common tools/diff/model tools/trace/model tools/trace/names "
        "tools/trace/read",
    "tools/diff/whole": "cupti/stats/tile tools/common tools/diff/compare tools/diff/model tools/diff/read tools/trace/model "
        "tools/trace/names",
    "tools/diff/shown": "tools/common tools/diff/align tools/diff/compare tools/trace/model",
    "tools/diff/verdict": "reader tools/common tools/diff/align tools/diff/births tools/diff/compare tools/diff/facts tools/diff/model "
        "tools/diff/read tools/diff/shown tools/diff/whole tools/trace/flow tools/trace/model tools/trace/names tools/trace/read",
    "tools/diff/cause": "tools/common tools/diff/compare tools/diff/model tools/diff/verdict",
    "tools/diff/ranks": "format/settings tools/common tools/diff/cause tools/diff/facts tools/diff/read tools/diff/verdict tools/diff/whole "
        "tools/trace/model tools/trace/read",
    "tools/diff/report": "tools/common tools/diff/births tools/diff/cause tools/diff/compare tools/diff/facts tools/diff/model "
        "tools/diff/verdict tools/report",
    "tools/diff/page": "tools/common tools/diff/cause tools/diff/facts tools/diff/report tools/diff/verdict tools/report",
    "tools/diff/expect": "format/settings reader tools/common tools/diff/facts tools/diff/report tools/diff/verdict tools/report "
        "tools/trace/model tools/trace/read",
    "tools/diff": "tools/common tools/diff/expect tools/diff/page tools/diff/ranks tools/diff/report tools/report "
        "tools/trace/names",
    "tools/check/model": "tools/common tools/trace/flow tools/trace/model",
    "tools/check/values": "tools/check/model tools/common tools/trace/flow tools/trace/model",
    "tools/check/memory": "tools/check/model tools/common tools/trace/model",
    "tools/check/training": "tools/check/model tools/common tools/trace/model",
    "tools/check/story": "tools/check/model tools/common tools/trace/model",
    "tools/check/report": "tools/check/model tools/common tools/report",
    "tools/check": "format/settings reader tools/check/model tools/check/report tools/check/story "
        "tools/common tools/report tools/trace/model tools/trace/read",
    "tools/origin/model": "tools/trace/model",
    "tools/origin/read": "reader tools/common tools/origin/model tools/trace/model tools/trace/read",
    "tools/origin/join": "tools/origin/model tools/origin/read tools/trace/model",
    "tools/origin/judge": "cupti/stats/tile tools/common tools/origin/join tools/origin/model tools/trace/model",
    "tools/origin/report": "tools/common tools/origin/model tools/report",
    "tools/origin": "tools/common tools/origin/join tools/origin/judge tools/origin/model tools/origin/read "
        "tools/origin/report tools/report tools/trace/read",
    "tools/cli/base": "format/file format/settings reader tools/common",
    "tools/cli/doctor": "format/settings tools/cli/base tools/common",
    "tools/cli/read": "format/file format/findings format/settings reader tools/cli/base tools/common tools/report "
        "tools/trace/flow tools/trace/model tools/trace/read",
    "tools/cli/rewrite": "format/file format/settings reader tools/cli/base tools/common",
    "tools/cli/run": "format/settings tools/cli/base tools/common",
    "tools/weights": "reader tools/common tools/report tools/trace/model tools/trace/names tools/trace/read",
    "tools/cli": "format/settings tools/cli/base tools/cli/run tools/common tools/report",
}
FOR_ALL = {"format/base", "format/model"}
MOST_MODULES = 16  # of a room
FOLDERS = {room.split("/")[0] for room in ROOMS}
PROJECT_FOLDERS = {*FOLDERS, "tests"}
CUDA_HEADER = re.compile(r"(cuda|cupti|cub/|nvrtc|nvtx|vector_types|fatbinary)")
CUDA_FOLDERS = ("cupti", "tests/fakecuda", "tests/fakenccl", "tests/gpu", "tests/integration/programs", "tests/unit/cupti", "tests/bench")
# The libraries made of these folders are loaded into programs that are not ours.
INJECTED = {"format", "cupti", "interposer"}
FORBIDDEN = {
    r"\b(abort|exit|_exit|_Exit|quick_exit|assert|setlocale|system)\s*\(": "ends or changes the host program",
    r"\bstd::(terminate|set_terminate|cout|cerr|clog|cin)\b": "ends or writes into the host program",
    r"\bthrow\b": "an exception could reach the host program",
    r"\b(printf|puts|putchar)\s*\(": "writes to the host program's stdout",
    r"#\s*include\s*<(iostream|cassert|assert\.h|locale|clocale)>": "is for programs, not for code inside one",
}
LOCKS = "format/base/mutex.h"
STANDARD_LOCKS = re.compile(r"\bstd::(shared_)?mutex\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
IMPORT = re.compile(r"^ *from \.(\.*)(\w*)\S* import", re.MULTILINE)


def without_comments_and_strings(text):
    """The text with comments and literals blanked, line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def room_of(name):
    return name.rpartition("/")[0]


def room_violations(rooms, edges, modules):
    """edges: room -> {room that it includes: where}."""
    above = set()
    for room, allowed in rooms.items():
        used, allowed = edges.get(room, {}), set(allowed.split())
        for target in sorted(allowed - used.keys() if room in modules else ()):
            yield f"{room}: includes nothing of {target}: take it out of ROOMS"
        for target in sorted(used.keys() - allowed - (FOR_ALL & above)):
            yield f"{used[target]}: {room} must not include {target} (ROOMS)"
        for target in sorted(allowed - above):
            yield f"ROOMS: {target} does not stand above {room}"
        if len(modules.get(room, ())) > MOST_MODULES:
            yield f"{room}: {len(modules[room])} modules, {MOST_MODULES} at most"
        above.add(room)
    for room in sorted(modules.keys() - above):
        yield f"{room}: no room of ROOMS"


def room_of_import(root, room, match):
    """The room of `from ..values import x` in a Python file of `room`."""
    ups, name = match.groups()
    base = [*pathlib.PurePosixPath(room).parts]
    del base[len(base) - len(ups):]
    return "/".join([*base, name] if name and root.joinpath(*base, name).is_dir() else base)


def violations(root, rooms=ROOMS):
    edges, modules = {}, {}
    for path in sorted(file for folder in PROJECT_FOLDERS for file in (root / folder).rglob("*")):
        name = path.relative_to(root).as_posix()
        folder, room = name.split("/")[0], room_of(name)
        if path.suffix not in SOURCES:
            continue
        text = path.read_text(errors="replace")
        if folder in FOLDERS and path.stem != "__init__":
            modules.setdefault(room, set()).add(path.stem)

        def at(position, name=name, text=text):
            return f"{name}:{text.count(chr(10), 0, position) + 1}"

        if path.suffix == ".py":
            for match in IMPORT.finditer(text if folder in FOLDERS else ""):
                target = room_of_import(root, room, match)
                if target != room:
                    edges.setdefault(room, {}).setdefault(target, at(match.start()))
            continue
        for match in INCLUDE.finditer(text):
            kind, header = match.groups()
            target = header.split("/")[0]
            if kind == '"' and folder in FOLDERS:
                if target not in PROJECT_FOLDERS:
                    yield f'{at(match.start())}: "{header}" does not begin at the root of the repository'
                elif room_of(header) != room:
                    edges.setdefault(room, {}).setdefault(room_of(header), at(match.start()))
            if CUDA_HEADER.match(header) and target != "cupti" and not name.startswith(CUDA_FOLDERS):
                yield f"{at(match.start())}: <{header}>: CUDA headers are for cupti/ only"
        code = without_comments_and_strings(text)
        for match in STANDARD_LOCKS.finditer(code if folder in FOLDERS - {"tools"} and name != LOCKS else ""):
            yield f"{at(match.start())}: `{match.group()}` is not checked by clang: use {LOCKS}"
        if folder in INJECTED:
            for pattern, why in FORBIDDEN.items():
                for match in re.finditer(pattern, code):
                    yield f"{at(match.start())}: `{match.group().strip(' (')}` {why}"
    yield from room_violations(rooms, edges, modules)


def self_test():
    """Each rule must find its violation, and nothing in a clean tree."""
    rooms = {"format/base": "", "format": "", "reader": "format", "cupti": "format", "interposer": "", "tools": "reader"}
    uses_format = {"reader/uses.h": '#include "format/a.h"\n', "tools/uses.h": '#include "reader/a.h"\n'}
    cases = [  # files, and how many violations are in them
        ({"format/a.h": '#include "reader/b.h"\n'}, 1),
        (uses_format | {"reader/a.h": '#include "cupti/b.h"\n#include "reader/c.h"\n'}, 1),
        (uses_format | {"tools/a.h": '#include "format/x.h"\n'}, 1),
        (uses_format | {"tools/a.h": '#include "format/base/x.h"\n'}, 0),
        (uses_format | {"reader/b.h": '#include "near.h"\n'}, 1),
        (uses_format | {"reader/c.cpp": "#include <cuda.h>\n"}, 1),
        ({"reader/a.h": "int a;\n"}, 1),  # what the table allows is not needed any more
        ({"reader/columns/a.h": "int a;\n"}, 1),
        ({f"format/{i}.{suffix}": "" for i in range(17) for suffix in ("h", "cpp")}, 1),
        ({f"format/{i}.h": "" for i in range(16)}, 0),
        ({"cupti/a.cpp": '#include <cuda.h>\n#include <cupti.h>\n#include "format/a.h"\n'}, 0),
        ({"interposer/b.cpp": "void f() { abort(); }\n"}, 1),
        ({"interposer/a.cpp": '// never exit(1)\nconst char* s = "throw";\nint fprintf(int);\n'}, 0),
        ({"format/b.cpp": "#include <iostream>\nvoid g() { std::cout << 1; throw 1; }\n"}, 3),
        ({"tests/a.cpp": '#include "interposer/core/x.h"\nvoid f() { abort(); }\n'}, 0),
        ({"format/base/mutex.h": "std::shared_mutex a;\n", "tests/a.cpp": "std::mutex b;\n"}, 0),
        ({"format/a.h": "std::mutex a; std::shared_mutex b;\n"}, 2),
        (uses_format | {"reader/a.py": "from . import b\nfrom .b import c\nfrom ..format import a\n", "format/a.py": ""}, 0),
        ({"format/a.py": "    from ..reader.b import a\n", "reader/a.py": "from ..format import a\n"}, 1),
    ]
    failed = len(list(room_violations({"a": "b", "b": ""}, {"a": {"b": "a/x.h:1"}}, {"a": {"x"}}))) != 1  # upward
    for files, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            found = list(violations(pathlib.Path(folder), rooms))
            if len(found) != expected:
                print(f"{list(files)}: expected {expected} violations, found {found}")
                failed = True
    return int(failed)


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

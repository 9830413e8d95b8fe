#!/usr/bin/env python3
"""Reports the compiled code of the statistics kernel for every GPU that it is built for: tables in Markdown.

usage: kernel_report.py [--json FILE] [--nvcc PATH] [--nvdisasm PATH] [SM...]    all architectures of the build; no GPU

Registers, stack and spills are ptxas's. Instructions an element are those of the shortest way once around the loop over
chunks (thread_tile.h) that loads a chunk and takes every element into hash, sums, extremes and sketch: the way of
ordinary values. The sketch of f64 is a second loop, added to the first. In brackets: how many of them are f64 arithmetic;
how many go to local memory, if any. "One sign" is the loop of tiles whose first values have one sign (thread_totals.h).
The code of a type is that of the kernel itself and of the function with the type's loops: what a block may fetch. Functions
for single values and for other layouts are left out.
The last table has what a turn of sm_90's loops consists of, of the types that miss a goal and of the hash alone.
--json writes rows as tools/bench does. nvdisasm is part of a CUDA toolkit; tools/setup --gates installs it.
"""
import argparse
import collections
import dataclasses
import heapq
import itertools
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "cupti" / "stats" / "kernels"
FLAGS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-I{ROOT}")
SLOW_F64 = {"86", "120"}  # where f32 is summed by narrow_sums.h
HASH_CHUNKS = 2  # of a turn of the hash alone (thread_hash.h), each loaded if the tile has it
GROUP_BYTES, CHUNK_GROUPS, BLOCK_THREADS, SM_REGISTERS = 16, 4, 64, 65536
CHUNK_BYTES = CHUNK_GROUPS * GROUP_BYTES
WIDENED = {"f4e2m1fn", "f8e8m0fnu"}  # by loads: a byte becomes two of a chunk (unpack.h), and another pass has the hash
BUDGET = {8: 72, 4: 36, 2: 18, 1: 9}  # what an SM of an H100 issues while 3.2 TB/s arrive
GOALS = {"f64": 42, "f32": 18, "f16": 12.5, "bf16": 12.5, "f8e4m3fn": 11, "f8e5m2": 11, "i8": 6, "u8": 6, "bool": 6, "i16": 10,
         "u16": 10, "i32": 16, "u32": 16}
HASH_GOAL, REGISTERS_GOAL = 12, 128
CLASSES = {"f64": ("DADD", "DMUL", "DFMA"), "conversion": ("F2F", "I2F", "F2I", "HADD2.F32"), "mma": ("IMMA",),
           "memory": ("LDG", "LDS", "LDL", "STL", "STS"), "local": ("LDL", "STL")}
PARTS = {"f32 arithmetic": ("FADD", "FMUL", "FFMA"), "f64 arithmetic, conversions to it": ("DADD", "DMUL", "DFMA", "F2F", "I2F"),
         "conversions to f32": ("HADD2.F32",), "bits, shifts: signs of the sketch, decoding": ("LOP3", "SHF", "PRMT", "SHFL", "IMAD.SHL", "IMAD.U32"),
         "extremes, comparisons, selections": ("VHMNMX", "HMNMX", "VIMNMX", "SEL", "ISETP"), "integer dot products": ("IDP",),
         "hash: products of matrices, keys": ("IMMA", "LDS"), "loads and their descriptors": ("LDG", "R2UR"), "local memory": ("LDL", "STL"),
         "copies of registers": ("IMAD.MOV", "MOV"), "integer multiplications, additions, addresses": ("IMAD", "IADD", "VIADD", "LEA", "IABS"),
         "branches, barriers, the rest": ("",)}  # an operation belongs to the first part that names it
SUMS = re.compile(r"gather_withI\S*?DTypeE(\d+)ELb(\d)E")
LANE = re.compile(r"gather_laneI\S*?DTypeE(\d+)E")
HASH = re.compile(r"gather_hashI\S*?DTypeE(\d+)E")


def dtypes():
    """Number: (name, bytes) of the types whose elements are summed."""
    rows = re.findall(r'X\(k\w+, (\d+), "(\w+)", (\d+)\)', (ROOT / "format" / "model" / "dtype.h").read_text())
    return {int(n): (name, int(size)) for n, name, size in rows if name != "unknown" and name[0] != "c"}


def functions(dot):
    """(name, blocks, edges) of each function in nvdisasm's graph of basic blocks."""
    for cluster in re.split(r'^subgraph "cluster_', dot, flags=re.MULTILINE)[1:]:
        blocks, edges = {}, collections.defaultdict(set)
        for name, body in re.findall(r'^"((?:[^"\\]|\\.)*)"\n\[label="\{(.*)\}"\]$', cluster, re.MULTILINE):
            lines = (re.sub(r"\\(.)", r"\1", line).strip() for line in re.split(r"\\l|\|?<(?:exit\d+|entry)>", body))
            blocks[name] = [re.sub(r"^@!?U?P\w+\s+", "", line).split()[0] for line in lines if line.endswith(";")]
        for source, target in re.findall(r'^"((?:[^"\\]|\\.)*)":\w+:\w+ -> "((?:[^"\\]|\\.)*)"', cluster, re.MULTILINE):
            edges[source].add(target)
        yield cluster.split('"')[0], blocks, edges


def code_bytes(blocks):
    return 16 * sum(map(len, blocks.values()))


def loads_group(op):
    return op.startswith("LDG") and re.search("128|64", op) is not None


def shortest_turn(blocks, edges, work, count, loads=CHUNK_GROUPS):
    """Operations of the shortest cycle with so many loads of groups and so many operations `work`."""
    wanted = (loads, count)

    def add(got, block):
        ops = blocks[block]
        more = (sum(map(loads_group, ops)), sum(op.startswith(work) for op in ops))
        return tuple(min(g + m, w) for g, m, w in zip(got, more, wanted))

    best, order = None, itertools.count()
    for head in (block for block in blocks if add((0, 0), block)[0]):
        seen, heap = set(), [(len(blocks[head]), next(order), head, add((0, 0), head), (head,))]
        while heap:
            length, _, block, got, path = heapq.heappop(heap)
            if best and length >= best[0]:
                break
            if (block, got) in seen:
                continue
            seen.add((block, got))
            for target in edges[block]:
                if target == head and got == wanted:
                    best = (length, path)
                elif target in blocks and target != head:
                    heapq.heappush(heap, (length + len(blocks[target]), next(order), target, add(got, target), path + (target,)))
    return [op for block in best[1] for op in blocks[block]] if best else None


def found_turn(dtype, *wanted, **loads):
    """@return shortest_turn(), which must be there."""
    return shortest_turn(*wanted, **loads) or sys.exit(f"no such loop of {dtype}: the kernel has another form than this program knows")


def work_of(narrow, shifted, name, size, elements):
    """@return (instruction, least number of it) by which the loop over ordinary values is recognized: a loop over rare ones,
    which is not unrolled, has fewer."""
    if narrow:
        return "FFMA", 5 * elements
    if size >= 4:
        return "DFMA", elements * (2 if shifted else 1)
    if name.startswith(("f", "bf")):  # of f16 every second square starts a sum, of others every fourth; and the sketch
        return "FFMA", (elements // 2 if name == "f16" else elements * 3 // 4) + elements
    return "IDP", CHUNK_BYTES // 4


@dataclasses.dataclass
class Loop:
    """A loop over the elements of a type. `ops` of a turn, of so many elements; `function_bytes` of the function it is in."""
    ops: list
    elements: int
    function_bytes: int = 0

    def per_element(self, starts=("",)):
        return sum(op.startswith(starts) for op in self.ops) / self.elements

    def parts(self):
        """@return {name of a part: operations of a turn}."""
        return collections.Counter(next(part for part, starts in PARTS.items() if op.startswith(starts)) for op in self.ops)


class Compiled:
    """One architecture's code."""

    def __init__(self, tools, sm, folder):
        cubin = pathlib.Path(folder) / f"stats_{sm}.cubin"
        done = subprocess.run(
            [tools.nvcc, *FLAGS, "-gencode", f"arch=compute_80,code=sm_{sm}", "-Xptxas", "-v", "-cubin",
             "-o", cubin, KERNELS / "stats_kernel.cu"], check=True, capture_output=True, text=True)
        said = done.stdout + done.stderr
        spilled = re.findall(r"Function properties for (\S+)\n.*?(\d+) bytes spill stores", said)
        self.spilled = {name: int(stored) for name, stored in spilled if int(stored)}
        of_kernel = re.search(r"entry function 'convtrace_stats'.*?Used (\d+) registers.*?(\d+) bytes cumulative stack", said, re.DOTALL)
        self.registers, self.stack = map(int, of_kernel.groups())
        graph = subprocess.run([tools.nvdisasm, "-bbcfg", cubin], check=True, capture_output=True, text=True).stdout
        self.functions = list(functions(graph))

    def spilled_in(self, name):
        """@return bytes that the function with the loop of a type spills: `name` as loops() has it."""
        dtype = name.partition(", ")[0]
        return sum(stored for function, stored in self.spilled.items() if (match := SUMS.search(function)) and
                   dtypes()[int(match.group(1))][0] == dtype)

    def kernel_bytes(self):
        """@return bytes of the kernel's own code, without the functions that it calls."""
        return sum(code_bytes(blocks) for name, blocks, _ in self.functions if name == "convtrace_stats")

    def loops(self, narrow):
        """{name of a type, or that with ", one sign": Loop}, and the Loop of the hash alone, of groups of 16 bytes."""
        found, lanes, hash_only = {}, {}, None
        for name, blocks, edges in self.functions:
            size_of = code_bytes(blocks)
            if match := SUMS.search(name):
                dtype, size = dtypes()[int(match.group(1))]
                elements, pairs = CHUNK_BYTES // size, match.group(2) == "1"
                if dtype == "f8e8m0fnu":
                    elements //= 2
                if pairs != (narrow and dtype == "f32"):
                    continue
                for shifted in (False, True) if size >= 4 and not pairs else (False,):  # a loop each
                    ops = found_turn(dtype, blocks, edges, *work_of(pairs, shifted, dtype, size, elements))
                    found[dtype + (", one sign" if shifted else "")] = Loop(ops, elements, size_of)
            elif match := LANE.search(name):
                dtype, size = dtypes()[int(match.group(1))]
                lanes[dtype] = found_turn(dtype, blocks, edges, "DFMA", GROUP_BYTES // size, loads=1) * CHUNK_GROUPS
            elif match := HASH.search(name):
                groups = HASH_CHUNKS * CHUNK_GROUPS
                hash_only = Loop(found_turn(dtypes()[int(match.group(1))][0], blocks, edges, "IMMA", groups, groups), groups, size_of)
        if hash_only is None:
            sys.exit("no loop of the hash alone: the kernel has another form than this program knows")
        for name, loop in found.items():
            loop.ops += lanes.get(name.split(",")[0], [])
            if name in WIDENED:  # their hash is a loop of its own, of half as many bytes as a chunk has
                loop.ops += hash_only.ops[:round(hash_only.per_element() * CHUNK_BYTES / 2 / GROUP_BYTES)]
        return found, hash_only


def row(name, value, unit, goal, against):
    return dict(name=name, value=round(value, 2), unit=unit, goal=None if goal is None else f"<= {goal}", against=against,
                ok=None if goal is None else value <= goal, spread=0)


def rows_of(sm, compiled, loops, hash_only):
    """Rows of one architecture. GPUs with fast f64 have goals: 1.25 times the instructions of sm_90."""
    kernel, against, judged, slack = f"kernel.sm_{sm}", "compiled, not run", sm not in SLOW_F64, 1 if sm == "90" else 1.25
    rows = [row(f"{kernel}.registers", compiled.registers, "registers", REGISTERS_GOAL if judged else None, against),
            row(f"{kernel}.spilled", sum(compiled.spilled.values()), "bytes stored", None, against),
            row(f"{kernel}.hash_only.per_16_bytes", hash_only.per_element(), "instructions", HASH_GOAL * slack if judged else None, against)]
    for name, loop in loops.items():
        prefix = f"{kernel}.{name.replace(', one sign', '.one_sign')}"
        goal = GOALS.get(name.split(",")[0]) if judged else None
        rows.append(row(f"{prefix}.instructions_per_element", loop.per_element(), "instructions", goal and goal * slack, against))
        rows += [row(f"{prefix}.{what}_per_element", loop.per_element(starts), "instructions", 0 if what == "local" and judged else None,
                     against) for what, starts in CLASSES.items()]
        rows.append(row(f"{prefix}.spilled", compiled.spilled_in(name), "bytes stored", None, against))
        rows.append(row(f"{prefix}.loop_bytes", 16 * len(loop.ops), "bytes of a turn", None, against))
        rows.append(row(f"{prefix}.code_bytes", compiled.kernel_bytes() + loop.function_bytes, "bytes", None, against))
    return rows


def spilled_by(compiled):
    names = []
    for function, stored in compiled.spilled.items():
        match = SUMS.search(function)
        plain = re.search(r"\d([a-z]+(?:_[a-z]+)+)[EI]", function)
        names.append(f"{dtypes()[int(match.group(1))][0]}{' in pairs' * int(match.group(2))} {stored}" if match
                     else f"{plain.group(1) if plain else function} {stored}")
    return ", ".join(names) or "nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or ROOT / ".venv" / "cuda" / "bin" / "nvcc")
    installed = next(iter(ROOT.glob(".venv/lib/python*/site-packages/nvidia/cu13/bin/nvdisasm")), None)
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm") or installed)
    parser.add_argument("sm", nargs="*", default=re.findall(r"\bsm_(\d+)", (KERNELS / "CMakeLists.txt").read_text()))
    tools = parser.parse_args()
    if tools.nvdisasm is None:
        sys.exit("nvdisasm is not here: tools/setup --gates installs it")
    print("| GPU | registers | blocks an SM | stack | hash alone, 16 bytes | spilled |\n|---|---|---|---|---|---|")
    columns, rows, shown = {}, [], {}
    with tempfile.TemporaryDirectory() as folder:
        for sm in tools.sm:
            compiled = Compiled(tools, sm, folder)
            columns[sm], hash_only = compiled.loops(sm in SLOW_F64)
            blocks = SM_REGISTERS // (-(-compiled.registers // 8) * 8 * BLOCK_THREADS)
            print(f"| sm_{sm} | {compiled.registers} | {blocks} | {compiled.stack} | {hash_only.per_element():.1f} | "
                  f"{spilled_by(compiled)} |", flush=True)
            rows += rows_of(sm, compiled, columns[sm], hash_only)
            if sm == "90":
                compiled_90 = compiled
                shown = {name: loop for name, loop in columns[sm].items() if loop.per_element() > GOALS.get(name.split(",")[0], math.inf)}
                shown["hash alone"] = hash_only
    print("\n| type | budget | " + " | ".join(f"sm_{sm}" for sm in columns) + " |\n|---|---|" + "---|" * len(columns))
    sizes = dict(dtypes().values())
    for name in sorted({name for loops in columns.values() for name in loops}, key=lambda name: list(sizes).index(name.split(",")[0])):
        cells = []
        for loops in columns.values():
            loop = loops.get(name)
            local = loop and loop.per_element(CLASSES["local"])
            spilled = f"; {local:.1f}" if local and local >= 0.1 else ""
            cells.append(f"{loop.per_element():.1f} ({loop.per_element(CLASSES['f64']):.1f}{spilled})" if loop else "")
        print(f"| {name} | {BUDGET[sizes[name.split(',')[0]]] / (2 if name == 'f4e2m1fn' else 1):g} | " + " | ".join(cells) + " |")
    if shown:
        print("\n| sm_90, instructions a turn | " + " | ".join(shown) + " |\n|---|" + "---|" * len(shown))
        print("| elements, groups of 16 bytes | " + " | ".join(str(loop.elements) for loop in shown.values()) + " |")
        kernel = compiled_90.kernel_bytes()
        print("| code of the type, KiB | " + " | ".join(f"{(kernel + loop.function_bytes) / 1024:.0f}" for loop in shown.values()) + " |")
        for part in PARTS:
            print(f"| {part} | " + " | ".join(str(loop.parts()[part] or "") for loop in shown.values()) + " |")
    if tools.json:
        tools.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

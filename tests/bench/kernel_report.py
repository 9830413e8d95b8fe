#!/usr/bin/env python3
"""What the compiler makes of the statistics kernel, for every GPU that it is built for: three tables in Markdown.

usage: kernel_report.py [--nvcc PATH] [--nvdisasm PATH] [SM...]      all architectures of the build; no GPU is needed

Registers, stack and spills are ptxas's. Instructions an element are those of the shortest way once around the loop over
chunks (thread_tile.h) that loads a chunk and multiplies every element: the way of ordinary values. In brackets: how many
of them are f64 arithmetic; how many go to local memory, if any. The third table has the second pass over a tile, which
makes its sketch, and what a sketch would add to a kernel that reads once: the loop of sketch_loop.cu without and with it.
nvdisasm is part of a CUDA toolkit and of the Python package nvidia-cuda-nvdisasm.
"""
import argparse
import collections
import heapq
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "cupti" / "stats" / "kernels"
SKETCH_LOOP = ROOT / "tests" / "bench" / "sketch_loop.cu"
FLAGS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-I{ROOT}")
SLOW_F64 = {"86", "89", "120"}  # where floats of up to 32 bits are summed by narrow_sums.h
GROUP_BYTES, CHUNK_GROUPS, BLOCK_THREADS, SM_REGISTERS = 16, 4, 64, 65536
BUDGET = {8: 72, 4: 36, 2: 18, 1: 9}  # what an SM of an H100 issues while 3.2 TB/s arrive
SKETCHED = ("f32", "bf16", "f8e4m3fn")
SKETCH_PASS = re.compile(r"gather_sketchI\S*?DTypeE(\d+)E")
FUNCTION = re.compile(r"gather_withI\S*?DTypeE(\d+)ENS1_\d+(Wide|Narrow)Sums")


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


def shortest_turn(blocks, edges, multiply, products, loads=CHUNK_GROUPS):
    """Operations of the shortest cycle with so many loads of groups and so many products."""
    wanted = (loads, products)

    def add(got, block):
        ops = blocks[block]
        more = (sum(op.startswith("LDG") and "128" in op for op in ops), sum(op.startswith(multiply) for op in ops))
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


def disassembled(tools, cubin):
    return list(functions(subprocess.run([tools.nvdisasm, "-bbcfg", cubin], check=True, capture_output=True, text=True).stdout))


class Compiled:
    """One architecture's code."""

    def __init__(self, tools, sm, folder):
        cubin = pathlib.Path(folder) / f"stats_{sm}.cubin"
        done = subprocess.run(
            [tools.nvcc, *FLAGS, "-gencode", f"arch=compute_80,code=sm_{sm}", "-Xptxas", "-v", "-cubin",
             "-o", cubin, KERNELS / "stats_kernel.cu"], check=True, capture_output=True, text=True)
        self.spilled = {}
        for name, stored in re.findall(r"Function properties for (\S+)\n.*?(\d+) bytes spill stores", done.stdout + done.stderr):
            if int(stored):
                self.spilled[name] = int(stored)
        of_kernel = re.search(r"entry function 'convtrace_stats'.*?Used (\d+) registers.*?(\d+) bytes cumulative stack",
                              done.stdout + done.stderr, re.DOTALL)
        self.registers, self.stack = map(int, of_kernel.groups())
        self.functions = disassembled(tools, cubin)
        loop = pathlib.Path(folder) / f"loop_{sm}.cubin"
        subprocess.run([tools.nvcc, *FLAGS, "-gencode", f"arch=compute_80,code=sm_{sm}", "-cubin", "-o", loop, SKETCH_LOOP], check=True)
        self.loops = {name: code for name, *code in disassembled(tools, loop)}

    def per_element(self, narrow):
        """{dtype: [instructions, f64 operations, accesses of local memory]}, each by element."""
        found = {}
        for name, blocks, edges in self.functions:
            match = FUNCTION.search(name)
            if match:
                found[int(match.group(1)), match.group(2)] = blocks, edges
        result = {}
        for dtype, (name, size) in dtypes().items():
            sums = "Narrow" if narrow and (dtype, "Narrow") in found else "Wide"
            elements = CHUNK_GROUPS * GROUP_BYTES // size
            products = ("FFMA", 4 * elements) if sums == "Narrow" else ("DFMA", 2 * elements)
            ops = shortest_turn(*found[dtype, sums], *products)
            if ops is None:
                sys.exit(f"no loop over chunks for {name}: the kernel has another form than this program knows")
            result[dtype] = [sum(op.startswith(starts) for op in ops) / elements
                             for starts in (("",), ("DADD", "DMUL", "DFMA"), ("LDL", "STL"))]
        return result

    def of_sketch(self):
        """{type: instructions an element (of the second pass, of the loop without, of the loop with a sketch)}."""
        passes = {int(match.group(1)): code for name, *code in self.functions if (match := SKETCH_PASS.search(name))}
        result = {}
        for dtype, (name, size) in dtypes().items():
            if name in SKETCHED:
                group = GROUP_BYTES // size
                chunk = CHUNK_GROUPS * group
                result[name] = (len(shortest_turn(*passes[dtype], "FFMA", group, loads=1)) / group,
                                len(shortest_turn(*self.loops["sketch_loop_bare"], "FFMA", 0)) / chunk,
                                len(shortest_turn(*self.loops[f"sketch_loop_{name}"], "FFMA", chunk)) / chunk)
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or ROOT / ".venv" / "cuda" / "bin" / "nvcc")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm") or "nvdisasm")
    parser.add_argument("sm", nargs="*", default=re.findall(r"\bsm_(\d+)", (KERNELS / "CMakeLists.txt").read_text()))
    tools = parser.parse_args()
    print("| GPU | registers | blocks an SM | stack | spilled |\n|---|---|---|---|---|")
    columns, sketches, names = {}, {}, dtypes()
    with tempfile.TemporaryDirectory() as folder:
        for sm in tools.sm:
            compiled = Compiled(tools, sm, folder)
            spilled = []
            for function, stored in compiled.spilled.items():
                match = FUNCTION.search(function)
                plain = re.search(r"5stats\d+([a-z_]+)E", function)
                name = f"{names[int(match.group(1))][0]} {match.group(2).lower()}" if match else plain.group(1) if plain else function
                spilled.append(f"{name} {stored}")
            blocks = SM_REGISTERS // (-(-compiled.registers // 8) * 8 * BLOCK_THREADS)
            print(f"| sm_{sm} | {compiled.registers} | {blocks} | {compiled.stack} | {', '.join(spilled) or 'nothing'} |", flush=True)
            columns[sm] = compiled.per_element(sm in SLOW_F64)
            sketches[sm] = compiled.of_sketch()
    print("\n| type | budget | " + " | ".join(f"sm_{sm}" for sm in columns) + " |\n|---|---|" + "---|" * len(columns))
    for dtype, (name, size) in names.items():
        cells = []
        for values in columns.values():
            instructions, wide, local = values[dtype]
            cells.append(f"{instructions:.1f} ({wide:.0f}" + (f"; {local:.1f})" if local >= 0.05 else ")"))
        print(f"| {name} | {BUDGET[size]} | " + " | ".join(cells) + " |")
    print("\n| GPU | type | second pass | a bare loop | the same with a sketch |\n|---|---|---|---|---|")
    for sm, types in sketches.items():
        for name, numbers in types.items():
            print(f"| sm_{sm} | {name} | " + " | ".join(f"{number:.1f}" for number in numbers) + " |")


if __name__ == "__main__":
    main()

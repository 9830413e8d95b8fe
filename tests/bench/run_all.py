"""Runs all benchmark programs and collects their rows; called by tools/bench.

A benchmark program is build/release/bin/bench_* or tests/bench/bench_*.py. It takes --quick and prints a JSON list of
rows {name, value, unit, goal, against, ok, spread}; value is null, with a why, where it cannot be measured here. Those
of LONG take many minutes, and do so with --full alone.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "build" / "release" / "bin"
# A row that no program prints is reported, not forgotten.
EXPECTED = (
    "preload.exec", "preload.python", "observer.module_call", "observer.told_cost_error", "observer.step_launches", "observer.step_stats",
    "observer.step_every50", "observer.modes_order", "observer.value_us", "observer.collective_us",
    "observer.tiny_step_stats", "observer.tiny_step_every50",
    "overhead.demo", "overhead.tiny", "overhead.uneven",
    "hash.cpu_vs_read", "stats.cpu.f32_vs_read", "stats.cpu.bf16_vs_read", "stats.cpu.i8_vs_read",
    "stats.cpu.threads_time", "diff.stats_pairs", "diff.events_per_s",
    "diff.vs_git", "diff.prefix_bytes", "diff.rss_1e8", "diff.seconds_1e8", "diff.html_100k", "diff.html_bytes",
    "check.records_per_s", "check.rss", "recover.gb_per_s", "pointer.scan_blocks", "pointer.scan",
    "pointer.scan_vs_map", "pointer.scan_flat", "pointer.update_vs_map",
    "pointer.bytes_per_range", "alias.event", "alias.bytes_per_generation",
    "event.push", "launch.off", "launch.record", "launch.instructions", "launch.rules", "launch.threads", "rules.first_sight",
    "encode.ns_per_event", "encode.bytes_per_event", "encode.vs_tables_time", "encode.vs_tables_size",
    "decode.events_per_s", "decode.threads", "checksum.vs_memcpy",
    "snapshot.codec.bf16", "snapshot.codec.f32", "snapshot.decode", "snapshot.codec.bf16_bound",
    "snapshot.codec.bf16_vs_zstd", "snapshot.incompressible",
    "job.origin.ranks_1000_s", "job.origin.growth", "job.origin.peak", "job.origin.named", "job.spark_vs_one",
)
LONG = ("bench_jobs.py", "bench_origin.py")


def missing(name, why):
    return dict(name=name, value=None, unit=None, goal=None, against=None, ok=None, spread=None, why=why)


def run(command, args):
    """The program's rows; a row that says why if it has none."""
    print(f"bench: {command[-1].name}", file=sys.stderr)
    how = ["--quick"] * args.quick + ["--full"] * (args.full and command[-1].name in LONG)
    result = subprocess.run([*command, *how], stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        return [missing(command[-1].name, f"the program ended with {result.returncode}")]
    return json.loads(result.stdout)


def show(rows):
    for row in rows:
        if row["value"] is None:
            print(f"{row['name']:26} {'-':>10}  {row['why']}")
        else:
            mark = "ok" if row["ok"] else "missed"
            print(f"{row['name']:26} {row['value']:10.4g} {row['unit']:12} goal {row['goal']:9} {mark:6} "
                  f"spread {row['spread']:.1%}  against {row['against']}")


def main():
    parser = argparse.ArgumentParser(prog="tools/bench", description="Runs every benchmark program.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: within 5 minutes on 2 cores")
    parser.add_argument("--full", action="store_true", help="also what takes many minutes and gigabytes")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="also write the rows to FILE")
    args = parser.parse_args()
    commands = [[path] for path in sorted(PROGRAMS.glob("bench_*"))]
    commands += [[sys.executable, path] for path in sorted(HERE.glob("bench_*.py"))]
    rows = [row for command in commands for row in run(command, args)]
    rows += [missing(name, "no program measures it here") for name in EXPECTED if name not in {r["name"] for r in rows}]
    show(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

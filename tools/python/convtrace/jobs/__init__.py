"""`convtrace origin` and `convtrace-diff` for folders and object stores of many traces, on DuckDB or Spark.

    python -m convtrace.jobs origin --engine duckdb|spark [--json F] DIR...
    python -m convtrace.jobs diff --engine duckdb|spark [--json F] BASE CAND

A task for each trace reads it where the engine starts it, and writes its step sums as Parquet. The engine finds, in SQL, the ranks
whose sums differ between two runs. The program judges the traces themselves: docs/scale.md.
"""

"""`convtrace origin` and `convtrace-diff` for folders and object stores of many traces, on DuckDB or Spark.

    python -m convtrace.jobs origin --engine duckdb|spark [--json F] DIR...
    python -m convtrace.jobs diff --engine duckdb|spark [--json F] BASE CAND

Map: a task for each trace, or pair of traces, runs the installed program where the engine starts it and writes the program's
output as Parquet. Reduce: the engine merges, in SQL, rows that are equal on several ranks. Judge: the program reads the remaining
rows and reports the same as for the traces themselves. docs/scale.md has the tables, and the reports of failed tasks.
"""

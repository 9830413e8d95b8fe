"""`convtrace origin` and `convtrace-diff` for folders and object stores of many traces, on DuckDB or Spark.

    python -m convtrace.jobs origin --engine duckdb|spark [--json F] DIR...
    python -m convtrace.jobs diff --engine duckdb|spark [--json F] BASE CAND

Map: a task for each trace, or pair of traces, runs the installed program where the engine starts it and writes what the program
says as Parquet. Reduce: the engine brings together, in SQL, what is equal on several ranks. Judge: the program reads what is left
and says what it says of the traces themselves. docs/scale.md has the tables and what is reported when a task fails.
"""

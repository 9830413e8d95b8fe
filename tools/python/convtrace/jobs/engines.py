"""The engines DuckDB and Spark. Both have

    each(function, tasks)             returns, in order, the result of function(task) or the exception that it raised
    write(sql, views, folder)         writes the rows of a query as Parquet
    is_local                          whether everything runs on this machine

`views` maps names in the query to folders of Parquet files. An existing folder is replaced.
"""
import concurrent.futures
import os
import shutil
import sys

from . import places


_TRIES = 3


class DuckDb:
    """Tasks run in `workers` threads, each of which waits for a program."""
    is_local = True

    def __init__(self, workers=None, **_):
        import duckdb

        self._duckdb = duckdb
        self._workers = workers or os.cpu_count()

    def each(self, function, tasks):
        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(_Caught(function), tasks))

    def write(self, sql, views, folder):
        if places.is_url(folder):
            raise ValueError("DuckDB writes to folders of this machine, not to " + folder)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        with self._duckdb.connect() as connection:
            for name, place in views.items():
                connection.execute("CREATE VIEW %s AS SELECT * FROM read_parquet(%s, hive_partitioning = false)" % (
                    name, _quoted(place + "/*.parquet")))
            connection.execute("COPY (%s) TO %s (FORMAT parquet)" % (sql, _quoted(folder + "/rows.parquet")))

    def close(self):
        pass


class Spark:
    """Tasks run on Spark's workers. They need this package, its programs and the same folders."""

    def __init__(self, master=None, **_):
        from pyspark.sql import SparkSession

        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        if master is None or master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("convtrace").config("spark.ui.enabled", "false")
        builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        self._session = (builder.master(master) if master else builder).getOrCreate()
        self.is_local = self._session.sparkContext.master.startswith("local")
        self._session.sparkContext.setLogLevel("FATAL")  # what fails is told here

    def each(self, function, tasks):
        try:
            return self._run(function, tasks)
        except Exception:  # noqa: BLE001 - a task that takes its worker with it ends the job of all
            return [_Caught(lambda task: self._run(function, [task])[0], tries=1)(task) for task in tasks]

    def _run(self, function, tasks):
        return self._session.sparkContext.parallelize(tasks, max(1, len(tasks))).map(_Caught(function)).collect()

    def write(self, sql, views, folder):
        for name, place in views.items():
            self._session.read.parquet(_url(place)).createOrReplaceTempView(name)
        self._session.sql(sql).write.mode("overwrite").parquet(_url(folder))

    def close(self):
        self._session.stop()


ENGINES = {"duckdb": DuckDb, "spark": Spark}


class _Caught:
    """A function that is retried when it fails, and returns its last exception, so that the other tasks continue."""

    def __init__(self, function, tries=_TRIES):
        self._function, self._tries = function, tries

    def __call__(self, task):
        for _ in range(self._tries):
            try:
                return self._function(task)
            except Exception as error:  # noqa: BLE001 - of any kind
                failure = RuntimeError(str(error) or type(error).__name__)
        return failure


def _quoted(text):
    return "'%s'" % text.replace("'", "''")


def _url(place):
    """@return a path as a URL, since Spark takes a bare path for one of the cluster's default file system."""
    return place if places.is_url(place) else "file://" + os.path.abspath(place)

"""Places of traces and results: folders of this machine, or URLs that pyarrow knows (s3://, gs://, hdfs://, file://)."""
import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import urllib.parse

from pyarrow import fs

_TABLES = ("traces", "steps", "differences")
_MARK = "convtrace-jobs"  # a file of this name is in each folder that a job has made
_MAGIC = b"\x89CTR\r\n\x1a\n"  # what a trace begins with


class Taken(RuntimeError):
    """The folder has other content, or another job writes to it."""


def is_url(path):
    return "://" in path


def opened(path):
    """@return (a pyarrow.fs.FileSystem, the path in it) of a place."""
    if is_url(path):
        return fs.FileSystem.from_uri(path)
    return fs.LocalFileSystem(), os.path.abspath(path)


def join(folder, *names):
    return "/".join([folder.rstrip("/"), *names])


@contextlib.contextmanager
def output(folder):
    """Reserves a folder for the tables of this job: it is new, empty, or that of an earlier job, whose tables are removed. In
    an object store a second job is not kept out. @raise Taken"""
    if re.search(r"[][*?{}\\]", folder):
        raise Taken("%s: engines take the name for a pattern: use one without [ ] * ? { } and \\" % folder)
    system, inside = opened(folder)
    kind = system.get_file_info(inside).type
    if kind == fs.FileType.File:
        raise Taken(folder + " is a file")
    held = [] if kind == fs.FileType.NotFound else [one.base_name for one in system.get_file_info(fs.FileSelector(inside))]
    other = sorted(set(held) - {_MARK, *_TABLES})
    if held and (_MARK not in held or other):
        raise Taken("%s exists, and holds more than the tables of an earlier job: %s" % (folder, (other or held)[0]))
    system.create_dir(inside)
    mark = join(inside, _MARK)
    with contextlib.ExitStack() as stack:
        if isinstance(system, fs.LocalFileSystem):
            lock = stack.enter_context(open(mark, "wb"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Taken(folder + ": another job writes there") from None
        else:
            system.open_output_stream(mark).close()
        for name in _TABLES:
            if system.get_file_info(join(inside, name)).type == fs.FileType.Directory:
                system.delete_dir(join(inside, name))
        yield


def is_folder(path):
    if not is_url(path):
        return os.path.isdir(path)
    system, inside = opened(path)
    return system.get_file_info(inside).type == fs.FileType.Directory


def traces(path):
    """@return the sorted paths of the traces in a folder, in a local one also of those not named *.ctrace; the path itself for
    a file or a missing place."""
    if not is_folder(path):
        return [path]
    if not is_url(path):
        found = sorted(os.path.join(path, name) for name in os.listdir(path))
        return [one for one in found if os.path.isfile(one) and (one.endswith(".ctrace") or _begins(one))]
    system, inside = opened(path)
    names = sorted(info.base_name for info in system.get_file_info(fs.FileSelector(inside)) if info.is_file)
    return [path.rstrip("/") + "/" + urllib.parse.quote(name) for name in names if name.endswith(".ctrace")]


@contextlib.contextmanager
def local(path):
    """Gives the path of a local file with the contents of `path`: itself, or a temporary copy."""
    if not is_url(path):
        yield path
        return
    system, inside = opened(path)
    folder = tempfile.mkdtemp(prefix="convtrace-")
    try:
        copy = os.path.join(folder, os.path.basename(inside))
        _copy(system, inside, copy)
        yield copy
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def staged(paths):
    """Copies the traces of all URLs into a folder, below their own names: a program that runs there finds and shows them as they
    were given. @return (the folder, the paths to give to the program)"""
    with tempfile.TemporaryDirectory(prefix="convtrace-") as folder:
        for path in filter(is_url, paths):
            for trace in traces(path):
                copy = os.path.join(folder, trace)
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                system, inside = opened(trace)
                if system.get_file_info(inside).is_file:
                    _copy(system, inside, copy)
        yield folder, [path if is_url(path) else os.path.abspath(path) for path in paths]


def _copy(system, inside, target):
    with system.open_input_stream(inside) as source, open(target, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _begins(path):
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False

"""Where traces and results are: folders of this machine, or URLs that pyarrow knows (s3://, gs://, hdfs://, file://)."""
import contextlib
import os
import shutil
import tempfile

from pyarrow import fs

from .. import records


def is_url(path):
    return "://" in path


def opened(path):
    """(a pyarrow.fs.FileSystem, the path in it)."""
    if is_url(path):
        return fs.FileSystem.from_uri(path)
    return fs.LocalFileSystem(), os.path.abspath(path)


def join(folder, *names):
    return "/".join([folder.rstrip("/"), *names])


def clear(folder, names):
    """Removes folders of earlier runs."""
    system, inside = opened(folder)
    for name in names:
        if system.get_file_info(join(inside, name)).type == fs.FileType.Directory:
            system.delete_dir(join(inside, name))


def is_folder(path):
    if not is_url(path):
        return os.path.isdir(path)
    system, inside = opened(path)
    return system.get_file_info(inside).type == fs.FileType.Directory


def traces(path):
    """The traces of a folder, whatever their names are, sorted; of a file, or of what is not there, the path itself."""
    if not is_folder(path):
        return [path]
    if not is_url(path):
        found = sorted(os.path.join(path, name) for name in os.listdir(path))
        return [one for one in found if os.path.isfile(one) and (one.endswith(".ctrace") or _begins(one))]
    system, inside = opened(path)
    names = sorted(info.base_name for info in system.get_file_info(fs.FileSelector(inside)) if info.is_file)
    return [path.rstrip("/") + "/" + name for name in names if name.endswith(".ctrace")]


@contextlib.contextmanager
def local(path):
    """The path of a file of this machine with the contents of `path`: itself, or a copy that goes away."""
    if not is_url(path):
        yield path
        return
    system, inside = opened(path)
    folder = tempfile.mkdtemp(prefix="convtrace-")
    try:
        copy = os.path.join(folder, os.path.basename(inside))
        with system.open_input_stream(inside) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        yield copy
    finally:
        shutil.rmtree(folder)


def _begins(path):
    try:
        with open(path, "rb") as file:
            return file.read(len(records.MAGIC)) == records.MAGIC
    except OSError:
        return False

"""One file with what a run has left so far, of at most 16 MiB: what a rented machine gives back.

It is a gzipped tar of which each file is a gzip member of its own, compressed once: to write the archive anew after each
check takes milliseconds, and its size is known before.
"""
import gzip
import io
import os
import pathlib
import tarfile

NAME = "gpu-check.tar.gz"
MOST_BYTES = 16 << 20
TOO_LARGE = 8 * MOST_BYTES  # not even tried
LEFT_OUT = "left-out.txt"
END = gzip.compress(bytes(2 * tarfile.BLOCKSIZE), mtime=0)


def member(name, content):
    """A file of a tar, compressed."""
    about = tarfile.TarInfo(name)
    about.size = len(content)
    return gzip.compress(about.tobuf() + content + bytes(-len(content) % tarfile.BLOCKSIZE), 6, mtime=0)


class Archive:
    """@param folder  what it holds. One thread at a time may call it."""

    def __init__(self, path, folder, most_bytes=MOST_BYTES):
        self.path, self.folder, self.most_bytes = pathlib.Path(path), folder, most_bytes
        self.members = {}  # by name, size and time of change: compressed, None for what is left out

    def refresh(self):
        """Writes the whole archive or leaves the one before. The smallest files come first; what does not fit is named."""
        files = sorted((path.stat().st_size, str(path.relative_to(self.folder)), path)
                       for path in self.folder.rglob("*") if path.is_file())
        left = self.most_bytes - len(END) - 64 * 1024  # for the list of what is left out
        kept, parts, left_out = {}, [], []
        for size, name, path in files:
            key = name, size, path.stat().st_mtime_ns
            if key in self.members:
                part = self.members[key]
            else:
                part = member(name, path.read_bytes()) if size <= TOO_LARGE else None
            if part is None or len(part) > left:
                left_out.append("%s %d bytes\n" % (name, size))
                kept[key] = None  # stays out: it is not compressed again
            else:
                left -= len(part)
                parts.append(part)
                kept[key] = part
        self.members = kept
        if left_out:
            parts.append(member(LEFT_OUT, "".join(left_out)[:48 * 1024].encode()))
        made = self.path.with_name(self.path.name + ".new")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(b"".join([*parts, END]))
        os.replace(made, self.path)


def unpack(path, folder):
    """The files of an archive, into a folder."""
    with tarfile.open(fileobj=io.BytesIO(pathlib.Path(path).read_bytes()), mode="r:gz") as tar:
        for about in tar:
            target = (folder / about.name).resolve()
            if about.isfile() and folder.resolve() in target.parents:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(tar.extractfile(about).read())

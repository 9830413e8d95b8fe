"""Prepares a suite: an environment on top of this repository's own with the suite's packages, and the files of its tests."""
import hashlib
import importlib.metadata
import pathlib
import shutil
import subprocess
import sys
import tarfile

import table

HERE = pathlib.Path(__file__).resolve().parent
PINS = HERE / "pins.txt"
sys.path.insert(0, str(HERE.parent / "driver"))

import fetch  # noqa: E402  of the driver's tests: apt-get with an index of its own


class Missing(Exception):
    """A package or a source cannot be had."""


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Missing("%s\n%s" % (" ".join(str(word) for word in words[:6]), (done.stdout + done.stderr)[-2000:]))
    return done.stdout


def made_once(folder, key, make):
    """@return `folder`, made anew by make(folder) unless that has been done for `key`."""
    done = folder.with_name(folder.name + ".made-by")
    if not folder.exists() or not done.exists() or done.read_text() != key:
        done.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        make(folder)
        done.write_text(key)
    return folder


def emptied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def pip(python, *words):
    return run(sys.executable, "-m", "pip", "--python", python, *words)


def environment(suite, folder, pinned=True):
    """@return the suite's Python: PyTorch and pytest are those of this interpreter."""
    bound = pathlib.Path(str(folder) + "-bounds.txt")  # what the suite depends on must not bring another PyTorch
    bound.parent.mkdir(parents=True, exist_ok=True)
    bound.write_text("torch==%s\n" % importlib.metadata.version("torch"))
    constraints = ("-c", bound, "-c", PINS) if pinned else ("-c", bound)
    packages = [*suite.needs] + [suite.package] * (suite.tests != "debian" and suite.package not in suite.bare)

    def make(folder):
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        python = folder / "bin" / "python"
        site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        # Lines of a .pth, not --system-site-packages: this interpreter may be of a virtual environment itself.
        outer = [path for path in sys.path if pathlib.Path(path).name in ("site-packages", "dist-packages")]
        (site / "outer.pth").write_text("".join(path + "\n" for path in outer))
        if packages:
            pip(python, "install", "-q", *constraints, *packages)
        if suite.bare:
            pip(python, "install", "-q", "--no-deps", *suite.bare)

    key = hashlib.sha256(repr((packages, suite.bare, sys.path, bound.read_text(), pinned and PINS.read_text())).encode()).hexdigest()
    return made_once(folder, key, make) / "bin" / "python"


def pin(python):
    """Adds to pins.txt what is installed in the environment of `python`, unless it is named there."""
    lines = PINS.read_text().splitlines() if PINS.exists() else []
    head, known = [line for line in lines if line.startswith("#")], {line.partition("==")[0]: line for line in lines if "==" in line}
    for line in pip(python, "freeze", "--local").splitlines():
        name = line.partition("==")[0].lower().replace("_", "-")
        if "==" in line and name not in known:
            known[name] = name + "==" + line.partition("==")[2]
    PINS.write_text("\n".join(head + sorted(known.values())) + "\n")


def unpack(archive, folder, below=""):
    """The files of a source archive, without its topmost folder; of them those in the folder `below` alone."""
    unpacked = folder.with_name(folder.name + ".part")
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as files:
        wanted = [entry for entry in files if entry.name.partition("/")[2].startswith(below)]
        if hasattr(tarfile, "data_filter"):
            files.extractall(unpacked, wanted, filter="data")
        else:
            files.extractall(unpacked, wanted)
    top, = unpacked.iterdir()
    top.rename(folder)
    shutil.rmtree(unpacked)


def from_index(suite, folder):
    name = suite.package.partition("==")[0]
    fetched = folder.with_name("fetched")
    shutil.rmtree(fetched, ignore_errors=True)
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", fetched, suite.package)
    archive, = fetched.iterdir()
    unpack(archive, folder)
    shutil.rmtree(fetched)


def from_debian(suite, folder):
    """Fetched once for all suites that are PyTorch's; apt-get checks what it fetches."""
    try:
        apt = ["apt-get", *fetch.private_apt(folder.with_name("apt"), "deb-src", [table.DEBIAN_RELEASE], "main")]
        fetched = folder.with_name("fetched")
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir()
        fetch.run(*apt, "update")
        fetch.run(*apt, "source", "--download-only", "pytorch/" + table.DEBIAN_RELEASE, cwd=fetched)
    except fetch.Missing as reason:
        raise Missing(str(reason)) from None
    archives = list(fetched.glob("pytorch_%s+*.orig.tar.*" % suite.version))
    if len(archives) != 1:
        raise Missing("the archive has another PyTorch: %s" % ", ".join(path.name for path in fetched.iterdir()))
    unpack(archives[0], folder, "test/")
    shutil.rmtree(fetched)


def sources(suite, python, folder):
    """@return where pytest is to run: what Suite.select names is below it."""
    if suite.tests == "wheel":
        return pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()) / suite.folder
    if suite.tests == "debian":
        made = made_once(folder.parent / "pytorch-sources" / "files", suite.package, lambda target: from_debian(suite, target))
    else:
        made = made_once(folder / "files", suite.package, lambda target: from_index(suite, target))
    return made / suite.folder

"""Common parts of the tests of stage `driver`: NVIDIA's driver libraries, and programs that run with one of them.

No machine needs a device: cuInit answers 100 (no device), and everything that a program fetches before it asks for a
device is real. As root, cuInit makes the node /dev/nvidiactl, so programs run in a mount namespace with a /dev of their
own, or, if that is impossible, as an unprivileged user.
"""
import ctypes
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "build" / "driver"
WHEELS = FILES / "wheels"
BUILD = pathlib.Path(os.environ.get("CONVTRACE_BUILD", ROOT / "build" / "release"))
PROGRAMS = BUILD / "tests" / "driver"
STUB = BUILD / "lib" / "libconvtrace.so"
DRIVERS = {path.parent.name: path.parent for path in sorted(FILES.glob("drivers/*/libcuda.so.1"))}
BOTH_MODES = ({}, {"CONVTRACE_POISON": "1"})
NO_DEVICE = 100
# Programs that train run with the oldest and the newest driver, and with all where CONVTRACE_TEST_FULL is set.
FULL = "CONVTRACE_TEST_FULL" in os.environ
SAMPLE = list(DRIVERS) if FULL else sorted({min(DRIVERS), max(DRIVERS)}) if DRIVERS else []

PRIVATE_DEV = """set -e
mount -t tmpfs -o mode=755 private /mnt
for node in null zero full random urandom tty; do touch /mnt/$node; mount --bind /dev/$node /mnt/$node; done
mkdir /mnt/shm; mount --bind /dev/shm /mnt/shm
mount --move /mnt /dev
exec "$@"
"""


def isolation():
    """@return what to put in front of a command."""
    if os.geteuid() != 0:
        return []
    for way in (["unshare", "-m", "sh", "-c", PRIVATE_DEV, "sh"],
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]):
        if subprocess.run(way + [sys.executable, "-c", ""], capture_output=True).returncode == 0:
            return way
    print("root without mount namespaces or setpriv: a driver library would make a device node")
    sys.exit(77)


ISOLATED = isolation()


def run(command, driver=None, traced=False, libraries=(), text=None, **settings):
    """Runs to the end with the driver's library on the library path.

    @param driver  a key of DRIVERS.
    @param settings  more of its environment.
    @return the finished process.
    """
    folders = [str(folder) for folder in libraries] + ([str(DRIVERS[driver])] if driver else [])
    environment = {"PATH": os.environ["PATH"], "HOME": "/tmp", "LD_LIBRARY_PATH": ":".join(folders),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    if "TORCH_EXTENSIONS_DIR" in os.environ:
        environment["TORCH_EXTENSIONS_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"]
    if traced:
        environment["LD_PRELOAD"] = str(STUB)
    environment.update(settings)
    assigned = ["%s=%s" % item for item in environment.items()]
    return subprocess.run(ISOLATED + ["env", "-i"] + assigned + [str(part) for part in command], input=text,
                          capture_output=True, text=True, timeout=300)


def run_python(script, *arguments, **options):
    """@return what the script printed, as JSON."""
    done = run([sys.executable, pathlib.Path(__file__).parent / script, *arguments], **options)
    if done.returncode != 0:
        raise AssertionError("%s: exit %d: %s" % (script, done.returncode, done.stderr))
    return json.loads(done.stdout)


def gated(memory):
    """@param memory  with those that are wrapped for poison and quarantine alone.
    @return the names of the gate's wrappers."""
    rows = (ROOT / "interposer/preload/gated.def").read_text()
    names = re.findall(r"^(?:LAUNCH|CALL|OWN)\((\w+)", rows, re.M)
    return set(names if memory else names[:names.index("cuMemAlloc_v2")])


def requests():
    """@return {(name, version, flags): the software that asks so} of the golden list."""
    lines = (ROOT / "tests/golden/driver/requests.txt").read_text().splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return {(row[0], int(row[1]), int(row[2])): row[3:] for row in rows}


class DriverTestCase(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o777)  # programs may run as another user


def on_each(drivers):
    """@param drivers  keys of DRIVERS, of which the test takes one, too."""
    def of_test(test):
        @functools.wraps(test)
        def on_each_of_them(self):
            for driver in drivers:
                with self.subTest(driver=driver):
                    test(self, driver)
        return on_each_of_them
    return of_test


on_each_driver = on_each(DRIVERS)


@functools.lru_cache(None)
def library(driver):
    """@return the driver's library in this process: to look at it, never to call cuInit."""
    return ctypes.CDLL(str(DRIVERS[driver] / "libcuda.so.1"))


def main():
    """Skips where the stage's files are not complete, as fetch.py says."""
    result = FILES / "result"
    if not result.exists() or "skipped" in result.read_text():
        print(result.read_text() if result.exists() else "tests/driver/fetch.py has not run")
        sys.exit(77)
    unittest.main()

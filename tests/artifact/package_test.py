"""The package of tools/package: it is small, reproducible, and runs in a root folder that holds only glibc.

usage: package_test.py BUILD SOURCE
"""
import _ctypes
import binascii
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PYTHON = os.path.realpath(sys.executable)
BUILD, SOURCE = (pathlib.Path(argument) for argument in sys.argv[1:3])
GLIBC = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6")
# Runs the arguments behind the first in a root folder, the first, that has /proc, /dev and this Python's folder, too. A plain
# user may do so only where the kernel lets them.
IN_ROOT = [shutil.which("unshare"), "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "/bin/sh", "-c",
           'PATH=/usr/bin:/bin; for folder in /proc /dev %s; do mkdir -p "$0$folder" && mount --rbind $folder "$0$folder" || exit 1; done; '
           'exec %s "$0" "$@"' % (sys.base_prefix, shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin"))]
FLOOR = (2, 35)
LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libcuda.so.1"}


def package(folder, *options):
    done = subprocess.run([str(SOURCE / "tools" / "package"), "--no-build", *options, str(folder)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "CONVTRACE_BUILD": str(BUILD)})
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


def result_in(folder):
    path, = folder.glob("*.json")
    return json.loads(path.read_text())


def libraries_of(program):
    """Paths of the shared libraries that the loader finds for a program."""
    listed = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, check=True, text=True).stdout
    return [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]


def library_of(program, name):
    return next(path for path in libraries_of(program) if os.path.basename(path) == name)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.base = pathlib.Path(cls.folder.name)
        cls.file = package(cls.base / "dist")
        cls.root = cls.base / "root"
        cls.root.mkdir()
        subprocess.run(["tar", "-C", str(cls.root), "--zstd", "-xf", str(cls.file)], check=True)
        cls.tree, = cls.root.iterdir()
        cls.add_glibc()
        shutil.copytree(BUILD / "fakecuda", cls.root / "fakecuda")
        for name in ("tmp", "proc"):
            (cls.root / name).mkdir()

    @classmethod
    def add_glibc(cls):
        for folder in ("lib64", "lib/x86_64-linux-gnu"):
            (cls.root / folder).mkdir(parents=True)
        for name in GLIBC:
            shutil.copy(library_of(cls.tree / "lib" / "libconvtrace-core.so", name), cls.root / "lib/x86_64-linux-gnu" / name)
        parts = (getattr(part, "__file__", PYTHON) for part in (_ctypes, binascii))  # or built in
        for user in (PYTHON, *parts):  # Python's own needs
            for path in libraries_of(user):
                if not path.startswith(sys.base_prefix) and not (cls.root / "lib/x86_64-linux-gnu" / os.path.basename(path)).exists():
                    shutil.copy(path, cls.root / "lib/x86_64-linux-gnu")
        shutil.copy(cls.root / "lib/x86_64-linux-gnu" / GLIBC[0], cls.root / "lib64" / GLIBC[0])

    def inside(self, *command):
        """Runs a program of the tree in the bare root."""
        return subprocess.run([*IN_ROOT, str(self.root), "/%s/bin/%s" % (self.tree.name, command[0]), *command[1:]],
                              env={"LD_LIBRARY_PATH": "/fakecuda", "PATH": os.environ["PATH"]},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_it_is_small_and_named_by_version_and_system(self):
        self.assertRegex(self.file.name, r"^convtrace-\d+\.\d+\.\d+-linux-x86_64\.tar\.zst$")
        self.assertLess(self.file.stat().st_size, 40 << 20)

    def test_the_same_build_gives_the_same_bytes(self):
        self.assertEqual(package(self.base / "again").read_bytes(), self.file.read_bytes())

    def test_as_a_folder_it_is_the_same_tree_and_travels_as_it_is(self):
        def files(tree):
            return {path.relative_to(tree): (path.read_bytes(), path.stat().st_mode) for path in tree.rglob("*")
                    if path.is_file() and "__pycache__" not in path.parts}

        packed = self.unpacked("packed-for-folder")
        folder = package(self.base / "folder", "--tree")
        self.assertEqual(files(folder), files(packed))
        self.assertEqual(files(package(self.base / "folder", "--tree")), files(packed))  # in place of the one before
        self.assertEqual([path.name for path in (self.base / "folder").iterdir()], [self.tree.name])
        size = sum(len(content) for content, _ in files(folder).values())
        self.assertLess(size, 40 << 20)  # what a rented machine takes

    def unpacked(self, name):
        """A tree in which nothing has run."""
        folder = self.base / name
        folder.mkdir()
        subprocess.run(["tar", "-C", str(folder), "--zstd", "-xf", str(self.file)], check=True)
        return folder / self.tree.name

    def test_it_says_what_it_was_made_of(self):
        about = json.loads((self.tree / "share" / "convtrace" / "build.json").read_text())
        self.assertIn("-%s-" % about["version"], self.file.name)
        self.assertTrue(re.fullmatch(r"[0-9a-f]{12}(-dirty)?|unknown", about["commit"]), about)

    def test_what_the_readme_links_to_is_there(self):
        linked = set(re.findall(r"\]\(([^)#]+)", (self.tree / "README.md").read_text()))
        self.assertLessEqual({"docs/gpu-check.md", "docs/adr/README.md", "docs/diff-report.png"}, linked)
        self.assertEqual([page for page in linked if not (self.tree / page).exists()], [])

    def test_it_names_no_path_of_the_machine_it_was_built_on(self):
        for path in self.unpacked("packed").rglob("*"):
            self.assertFalse(path.is_symlink(), path)
            content = path.read_bytes() if path.is_file() else b""
            named = [folder for folder in (SOURCE, BUILD, self.base) if str(folder).encode() + b"/" in content]
            self.assertEqual(named, [], path)

    def test_every_library_and_program_needs_an_old_glibc_and_the_driver_alone(self):
        seen = 0
        for path in self.tree.rglob("*"):
            if not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
                continue
            seen += 1
            said = subprocess.run(["readelf", "--dynamic", "--version-info", "--wide", str(path)], stdout=subprocess.PIPE, text=True)
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said.stdout))
            self.assertLessEqual(needed, LIBRARIES | {"libunwind.so.8", "liblzma.so.5", "libgcc_s.so.1"}
                                 if "unwind" in path.name else LIBRARIES, path)
            floor = max(tuple(map(int, one.split("."))) for one in re.findall(r"GLIBC_([0-9.]+)", said.stdout))
            self.assertLessEqual(floor[:2], FLOOR, path)
            self.assertNotRegex(said.stdout, r"\((RPATH|RUNPATH)\).*\[/", path)
        self.assertGreaterEqual(seen, 12)

    def test_gpu_check_works_from_the_tree(self):
        """The tree is used as on a GPU machine without a build, but over the fake driver."""
        out = self.base / "checked"
        command = [sys.executable, str(self.tree / "tools" / "gpu-check"), "--out", str(out), "--part", "1"]
        done = subprocess.run(command, env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(BUILD / "fakecuda")},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = result_in(out)
        about = json.loads((self.tree / "share" / "convtrace" / "build.json").read_text())
        self.assertEqual((results["device"], results["commit"]), ("Fake device 0", about["commit"]))
        self.assertEqual({check["result"] for check in results["checks"].values()}, {"pass"})
        command[2:] = ["--within", "30", "--dry-run"]
        shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((shown.returncode, "skipped: speed" in shown.stdout), (0, True), shown.stderr)

    def need_root(self):
        if subprocess.run([*IN_ROOT, str(self.root), PYTHON, "-c", "pass"], env={}, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("this user may not change the root folder")

    def test_gpu_check_works_with_glibc_and_python_alone(self):
        """All that needs no PyTorch: no shell, no git, no compiler is there."""
        self.need_root()
        name = "/" + self.tree.name
        done = subprocess.run([*IN_ROOT, str(self.root), PYTHON, name + "/tools/gpu-check", "--out", "/tmp/checked",
                               "--part", "1"],
                              env={"LD_LIBRARY_PATH": "/fakecuda", "PATH": "/nowhere"},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
        checks = result_in(self.root / "tmp/checked")["checks"]
        self.assertLessEqual({"injection", "ways to the driver", "threads", "launches that take freed memory",
                              "illegal address"}, set(checks))
        self.assertEqual({check["result"] for check in checks.values()}, {"pass"})
        # A Python that never trains is not disturbed.
        done = subprocess.run([*IN_ROOT, str(self.root), name + "/bin/convtrace", "run", "--output", "/tmp/none.ctrace", "--", PYTHON,
                               "-c", "print('here')"], env={"PATH": "/nowhere"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "here\n"), done.stderr)
        self.assertFalse((self.root / "tmp/none.ctrace").exists())

    def test_programs_and_engine_work_with_glibc_alone(self):
        self.need_root()
        program = "/%s/share/convtrace/gpu-check/bin/gpu_launches" % self.tree.name
        done = self.inside("convtrace", "run", "--output", "/tmp/a.ctrace", "--", program, "--launches", "1000")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 2, done.stderr)  # where the trace goes, and what is in it
        said = json.loads(done.stdout)
        info = self.inside("convtrace", "info", "--json", "/tmp/a.ctrace")
        self.assertEqual((info.returncode, info.stderr), (0, ""))
        info = json.loads(info.stdout)
        self.assertEqual(info["state"], "complete")
        self.assertEqual([info["records"][kind] for kind in ("launch", "alloc", "free")],
                         [said["launches"], said["allocations"], said["frees"]])
        compared = self.inside("convtrace-diff", "/tmp/a.ctrace", "/tmp/a.ctrace")
        self.assertEqual(compared.returncode, 3, compared.stdout)  # launches alone: nothing to compare
        self.assertIn("NOT COMPARABLE", compared.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

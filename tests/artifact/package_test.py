"""What tools/package makes: small, the same every time, and at home in a root folder that holds glibc and nothing else.

usage: package_test.py BUILD SOURCE
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (pathlib.Path(argument) for argument in sys.argv[1:3])
GLIBC = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6")
# Runs the arguments behind the first in a root folder, the first, that has a /proc too. A plain user may do so only where
# the kernel lets them.
IN_ROOT = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c",
           'mount --rbind /proc "$0/proc" && PATH=$PATH:/usr/sbin && exec chroot "$0" "$@"']


def package(folder):
    done = subprocess.run([str(SOURCE / "tools" / "package"), "--no-build", str(folder)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env={**os.environ, "CONVTRACE_BUILD": str(BUILD)})
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


def library_of(program, name):
    """Path of a shared library as the loader finds it for a program."""
    listed = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, check=True, text=True).stdout
    return next(word for line in listed.splitlines() if name in line for word in line.split() if word.startswith("/"))


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
        shutil.copy(cls.root / "lib/x86_64-linux-gnu" / GLIBC[0], cls.root / "lib64" / GLIBC[0])

    def inside(self, *command):
        """Runs a program of the tree in the bare root."""
        return subprocess.run([*IN_ROOT, str(self.root), "/%s/bin/%s" % (self.tree.name, command[0]), *command[1:]],
                              env={"LD_LIBRARY_PATH": "/fakecuda", "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_it_is_small_and_named_by_version_and_system(self):
        self.assertRegex(self.file.name, r"^convtrace-\d+\.\d+\.\d+-linux-x86_64\.tar\.zst$")
        self.assertLess(self.file.stat().st_size, 40 << 20)

    def test_the_same_build_gives_the_same_bytes(self):
        self.assertEqual(package(self.base / "again").read_bytes(), self.file.read_bytes())

    def test_it_says_what_it_was_made_of(self):
        about = json.loads((self.tree / "share" / "convtrace" / "build.json").read_text())
        self.assertIn("-%s-" % about["version"], self.file.name)
        self.assertTrue(re.fullmatch(r"[0-9a-f]{12}(-dirty)?|unknown", about["commit"]), about)

    def test_gpu_check_works_from_the_tree(self):
        """As on a GPU machine without a build, here over the fake driver."""
        out = self.base / "checked"
        done = subprocess.run([sys.executable, str(self.tree / "tools" / "gpu-check"), "--out", str(out), "--section", "driver"],
                              env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(BUILD / "fakecuda")},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads((out / "report.json").read_text())
        about = json.loads((self.tree / "share" / "convtrace" / "build.json").read_text())
        self.assertEqual((report["device"], report["commit"]), ("Fake device 0", about["commit"]))
        self.assertEqual(report["sections"][0]["status"], "pass")

    def test_programs_and_engine_work_with_glibc_alone(self):
        if subprocess.run([*IN_ROOT, "/", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("this user may not change the root folder")
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

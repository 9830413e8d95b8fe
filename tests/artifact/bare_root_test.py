"""The wheel in a bare Debian, as a user has it: pip installs wheel and PyTorch, the demo gives its verdict, no compiler.

usage: bare_root_test.py SOURCE [CASE...]     needs root, debootstrap and the registries of Debian and pip; downloads gigabytes

For arm64 the kernel has to run its programs: Debian's qemu-user-static, and
cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register
"""
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(sys.argv[1])
SKIPPED = 77
BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
# Emulated, a step of the demo takes a quarter of an hour: one of them, and on one thread, since others would spin.
STEPS = """cd /root && export OMP_NUM_THREADS=1
train=$(dirname "$(convtrace path)")/../share/convtrace/demo/train.py
for op in correct reuse; do
  LD_PRELOAD=$(convtrace path) CONVTRACE_OUTPUT=$op.ctrace python3 "$train" --op $op --steps 1 || exit
done
convtrace-diff correct.ctrace reuse.ctrace; echo ended with $?"""
# /proc and /dev are mounted in a namespace of their own, so that nothing is left of them.
ENTER = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /usr/bin/env -i "$@"'


class BareRoot(unittest.TestCase):
    def inside(self, *words):
        env = ["HOME=/root", "PATH=/env/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK=1",
               "PIP_CERT=%s" % CERTIFICATES]
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, self.root, *env, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        return done.stdout

    def demo_in(self, suite, machine="x86_64", debian="amd64"):
        made = subprocess.run([SOURCE / "tools" / "wheel", "--arch", machine], stdout=subprocess.PIPE, check=True, text=True)
        wheel = pathlib.Path(made.stdout.splitlines()[-1])
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        subprocess.run(["debootstrap", "--variant=minbase", "--arch=" + debian, "--include=python3,python3-venv,ca-certificates", suite, self.root],
                       stdout=subprocess.DEVNULL, check=True)
        for file in (pathlib.Path("/etc/resolv.conf"), CERTIFICATES):
            shutil.copy(file, self.root / str(file)[1:])
        shutil.copy(wheel, self.root)
        self.assertEqual(self.inside("uname", "-m").strip(), machine)
        self.assertEqual(self.inside("sh", "-c", "for name in cc gcc g++ clang nvcc; do command -v $name; done; true"), "")
        self.inside("python3", "-m", "venv", "/env")
        self.inside("/env/bin/pip", "install", "-q", "--upgrade", "pip")
        self.inside("/env/bin/pip", "install", "-q", "--no-index", "/" + wheel.name)
        self.inside("/env/bin/pip", "install", "-q", "--no-cache-dir", "torch", "numpy")
        start = time.monotonic()
        if machine == platform.machine():
            said = self.inside("sh", "-c", "cd /root && convtrace demo")
            self.assertLess(time.monotonic() - start, 180)
            self.assertIn("convtrace named the op that made the bad tensor", said)
            self.assertTrue((self.root / "root" / "convtrace-demo" / "diff.html").exists())
        else:
            said = self.inside("sh", "-c", STEPS)
            self.assertIn("bias_relu", said)
            self.assertIn("ended with 1", said)
        self.assertNotIn("CT-13", said)  # the observer's own failures
        print("%s %s: a verdict after %.0f s" % (suite, machine, time.monotonic() - start))

    def test_debian_11(self):
        self.demo_in("bullseye")

    def test_debian_12(self):
        self.demo_in("bookworm")

    @unittest.skipUnless(BINFMT.exists(), "the kernel does not run programs of aarch64")
    def test_debian_12_on_arm64(self):
        self.demo_in("bookworm", "aarch64", "arm64")


if __name__ == "__main__":
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("skipped: needs root and debootstrap")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)

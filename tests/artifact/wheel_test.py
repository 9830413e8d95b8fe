"""The wheel of tools/wheel: it is one small file, runs with glibc 2.28, and is inactive until it is used.

usage: wheel_test.py BUILD SOURCE     builds the wheel, which takes minutes, and installs it without an index
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

BUILD, SOURCE = (pathlib.Path(argument) for argument in sys.argv[1:3])
FLOOR = (2, 28)
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
TRAIN = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    model = torch.nn.Sequential(torch.nn.Linear(300, 257), torch.nn.GELU(), torch.nn.Linear(257, 129)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    for scale in (1, 30, 1000):
        loss = model(scale * torch.randn(63, 300).to(dtype)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
values = torch.randint(-128, 127, (5003,))
for dtype in (torch.int64, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64):
    torch.nn.Identity()(values.to(dtype))
"""
PLACES = "t_ns", "thread", "address", "value"  # differ from run to run


def output_of(*words, **options):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, check=True, text=True, **options).stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.base = pathlib.Path(folder.name)
        cls.file = pathlib.Path(output_of(SOURCE / "tools" / "wheel").splitlines()[-1])
        venv.create(cls.base / "env", with_pip=True)
        cls.bin = cls.base / "env" / "bin"
        output_of(cls.bin / "python", "-m", "pip", "install", "--no-index", "--no-deps", "-q", cls.file)
        cls.tree = pathlib.Path(output_of(cls.bin / "convtrace", "path").strip()).parents[1]

    def elf_files(self):
        found = [path for path in self.tree.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertLessEqual({"libconvtrace.so", "libconvtrace-core.so", "libconvtrace-codec.so", "convtrace",
                              "convtrace-diff"}, {path.name for path in found})
        return found

    def test_one_file_of_less_than_12_MB_for_any_python(self):
        self.assertRegex(self.file.name, r"^convtrace-[0-9.]+-py3-none-manylinux_2_28_x86_64\.whl$")
        self.assertLess(self.file.stat().st_size, 12_000_000)
        with zipfile.ZipFile(self.file) as archive:
            metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
        requirements = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
        self.assertTrue(requirements)
        self.assertEqual([text for text in requirements if "extra ==" not in text], [])

    def test_auditwheel_agrees(self):
        said = output_of(SOURCE / ".venv" / "bin" / "auditwheel", "show", self.file)
        tag = re.search(r'following\s+platform tag:\s+"manylinux_2_(\d+)_x86_64"', said)
        self.assertIsNotNone(tag, said)
        self.assertLessEqual(int(tag.group(1)), FLOOR[1])

    def test_symbols_and_libraries_are_those_of_glibc_2_28(self):
        for path in self.elf_files():
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output_of("readelf", "--wide", "--version-info", path))
            self.assertLessEqual(max(((int(a), int(b)) for a, b in versions), default=FLOOR), FLOOR, path.name)
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "--wide", "--dynamic", path))
            self.assertLessEqual(set(needed), LIBRARIES, path.name)

    def test_nothing_is_active_until_it_is_asked_for(self):
        mapped = output_of(self.bin / "python", "-c", "print(open('/proc/self/maps').read())")
        self.assertNotIn("convtrace", mapped)
        with zipfile.ZipFile(self.file) as archive:
            self.assertEqual([name for name in archive.namelist() if name.endswith(".pth")], [])

    def traced(self, program, name, seed):
        import torch

        trace = self.base / (name + ".ctrace")
        env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(torch.__file__))}
        output_of(program, "run", "--output", trace, "--overwrite", "--", self.bin / "python", "-c", TRAIN, seed, env=env,
                  stderr=subprocess.DEVNULL)
        return trace

    def test_a_training_is_traced_compared_read_and_exported(self):
        traces = [self.traced(self.bin / "convtrace", name, seed) for name, seed in (("base", 1), ("candidate", 2))]
        self.assertEqual(subprocess.run([self.bin / "convtrace-diff", *traces], stdout=subprocess.DEVNULL).returncode, 1)
        read = "import convtrace, sys; print(sum(e['record'] == 'stats' for e in convtrace.Trace(sys.argv[1])))"
        self.assertGreater(int(output_of(self.bin / "python", "-c", read, traces[0])), 100)
        for form in ("npy", "ort", "statistic-csv", "perfetto"):
            output_of(self.bin / "convtrace", "export", "--format", form, "-o", self.base / form, traces[0])
            self.assertTrue((self.base / form).exists(), form)

    def test_every_number_is_that_of_the_other_compilers_build(self):
        found = []
        for name, program in (("zig", self.bin / "convtrace"), ("gcc", BUILD / "bin" / "convtrace")):
            lines = output_of(program, "show", "--json", self.traced(program, name, 3)).splitlines()
            rows = [row for row in map(json.loads, lines) if row["record"] == "stats"]
            found.append([{key: row[key] for key in row if key not in PLACES} for row in rows])
        self.assertGreater(len(found[0]), 100)
        self.assertEqual(*found)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)

"""What tools/repackage makes of the wheel: a conda recipe that says what the wheel says, and a Containerfile whose lines run.

usage: repackage_test.py SOURCE Written|Conda|Container [WHEEL]     without WHEEL tools/wheel builds it, which takes minutes
Conda and Container build the packages, and end with 77, "not run", where there is no conda-build and no engine of containers.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

SOURCE = pathlib.Path(sys.argv[1])
SKIPPED = 77
ENGINES = "podman", "docker"


def output_of(*words, **options):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, check=True, text=True, **options).stdout


def engine():
    """@return the name of an engine of containers that works here, or None."""
    return next((name for name in ENGINES if shutil.which(name) and not subprocess.run([name, "info"], capture_output=True).returncode), None)


class Made(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        built = sys.argv[3] if len(sys.argv) > 3 else output_of(SOURCE / "tools" / "wheel").splitlines()[-1]
        cls.wheel = pathlib.Path(shutil.copy(built, cls.folder))
        cls.recipe, cls.container = map(pathlib.Path, output_of(SOURCE / "tools" / "repackage", cls.folder).splitlines())


class Written(Made):
    def said_by_the_wheel(self):
        with zipfile.ZipFile(self.wheel) as archive:
            metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
            scripts = archive.read(next(name for name in archive.namelist() if name.endswith("/entry_points.txt"))).decode()
        fields = dict(re.findall(r"^([\w-]+): (.*)$", metadata[:metadata.index("\n\n")], re.MULTILINE))
        return fields, re.findall(r"^([\w-]+) = ", scripts.split("[console_scripts]")[1].split("[")[0], re.MULTILINE)

    def test_the_recipe_says_what_the_wheel_says(self):
        import yaml

        recipe = yaml.safe_load((self.recipe / "meta.yaml").read_text())
        fields, scripts = self.said_by_the_wheel()
        self.assertEqual(recipe["package"], {"name": fields["Name"], "version": fields["Version"]})
        self.assertEqual(recipe["about"]["license"], fields["License-Expression"])
        self.assertEqual(recipe["about"]["summary"], fields["Summary"])
        self.assertEqual((self.recipe / recipe["about"]["license_file"]).read_text(), (SOURCE / "LICENSE").read_text())
        python = "python " + fields["Requires-Python"]
        self.assertIn(python, recipe["requirements"]["host"])
        self.assertEqual(recipe["requirements"]["run"], [python, "__glibc >=" + ".".join(re.search(r"_(\d+)_(\d+)_", self.wheel.name).groups())])
        self.assertEqual(recipe["test"]["commands"], [name + " --version" for name in scripts])
        paths = [self.recipe / source["path"] for source in recipe["source"]]
        self.assertTrue(paths[0].samefile(self.wheel))
        self.assertEqual([path.name for path in paths], [self.wheel.name, self.wheel.name.replace("x86_64", "aarch64")])
        pattern = recipe["build"]["script"].split()[-1]
        self.assertEqual([path.name for path in self.folder.glob(pattern)], [self.wheel.name])

    def test_the_lines_of_the_container_run_in_an_empty_environment(self):
        venv.create(self.folder / "env", with_pip=True)
        lines = re.findall(r"^RUN (?:--mount=\S+ )?(.*)$", self.container.read_text(), re.MULTILINE)
        self.assertEqual(len(lines), 2)
        env = {"PATH": "%s:/usr/bin:/bin" % (self.folder / "env" / "bin"), "HOME": str(self.folder)}
        said = [output_of("/bin/sh", "-c", line.replace("/wheels", str(self.folder)), env=env) for line in lines]
        version = self.wheel.name.split("-")[1]
        self.assertEqual(said[-1].split(), ["convtrace", version, "convtrace-diff", version])


class Conda(Made):
    def test_a_package_is_built_and_passes_its_tests(self):
        output_of("conda-build", "--no-anaconda-upload", "--output-folder", self.folder / "channel", self.recipe)
        self.assertEqual(len(list((self.folder / "channel").glob("linux-*/convtrace-*"))), 1)


class Container(Made):
    def test_an_image_is_built_and_runs_the_program(self):
        name = engine()
        image = "convtrace-test-%d" % os.getpid()
        output_of(name, "build", "-t", image, "-f", self.container, self.folder)
        self.addCleanup(subprocess.run, [name, "rmi", image], stdout=subprocess.DEVNULL)
        self.assertIn("usage", output_of(name, "run", "--rm", image).lower())
        self.assertTrue(output_of(name, "run", "--rm", image, "convtrace", "path").strip().endswith("libconvtrace.so"))


if __name__ == "__main__":
    if sys.argv[2] == "Conda" and shutil.which("conda-build") is None:
        print("not run: there is no conda-build")
        sys.exit(SKIPPED)
    if sys.argv[2] == "Container" and engine() is None:
        print("not run: there is no engine of containers that works: " + ", ".join(ENGINES))
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], sys.argv[2]], verbosity=2)

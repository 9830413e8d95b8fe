"""`convtrace path`, `convtrace env` and `python -m convtrace`: each form is read by a parser of its syntax."""
import json
import os
import shlex
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CONVTRACE_BUILD", os.path.join(ROOT, "build", "release"))
LIBRARY = os.path.join(BUILD, "lib", "libconvtrace.so")


def convtrace(*arguments):
    return subprocess.run([os.path.join(BUILD, "bin", "convtrace"), *arguments], capture_output=True, text=True)


class Environments(unittest.TestCase):
    def printed(self, *arguments):
        result = convtrace("env", *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def words(self, form):
        return shlex.split(self.printed(form), comments=True)

    def test_the_path_is_that_of_the_library_beside_the_program(self):
        result = convtrace("path")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, LIBRARY + "\n", ""))

    def test_a_shell_evaluates_it_and_keeps_what_is_preloaded(self):
        for before, after in ((None, LIBRARY), ("/lib/other.so", LIBRARY + ":/lib/other.so")):
            env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
            # Not in the environment of bash itself: the loader would complain that there is no such library.
            set_before = "LD_PRELOAD=%s; " % before if before else ""
            for form in ((), ("--shell",)):
                result = subprocess.run(["bash", "-euc", set_before + 'eval "$1"; echo "$LD_PRELOAD" 2>&1', "-",
                                         self.printed(*form)], env=env, capture_output=True, text=True)
                self.assertEqual(result.stdout, after + "\n")

    def test_slurm(self):
        self.assertEqual(self.words("--slurm"), ["srun", "--export=ALL,LD_PRELOAD=" + LIBRARY, "python", "train.py"])

    def test_docker(self):
        self.assertEqual(self.words("--docker"), [
            "docker", "run", "--volume", "%s:%s:ro" % (BUILD, BUILD), "--env", "LD_PRELOAD=" + LIBRARY, "IMAGE", "python",
            "train.py"])

    def test_ray(self):
        *start, environment, end, _, _ = self.words("--ray")
        self.assertEqual((start, end), (["ray", "job", "submit"], "--"))
        name, _, text = environment.partition("=")
        self.assertEqual((name, json.loads(text)), ("--runtime-env-json", {"env_vars": {"LD_PRELOAD": LIBRARY}}))

    def test_kubernetes(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no PyYAML")
        spec = yaml.safe_load(self.printed("--k8s"))["spec"]
        container, volume = spec["containers"][0], spec["volumes"][0]
        self.assertEqual(container["env"], [{"name": "LD_PRELOAD", "value": LIBRARY}])
        self.assertEqual(container["volumeMounts"], [{"name": volume["name"], "mountPath": BUILD, "readOnly": True}])
        self.assertEqual(volume["hostPath"], {"path": BUILD, "type": "Directory"})

    def test_one_form_at_once(self):
        self.assertEqual(convtrace("env", "--slurm", "--ray").returncode, 2)


class Module(unittest.TestCase):
    def run_module(self, *arguments):
        env = {key: value for key, value in os.environ.items() if not key.startswith("CONVTRACE_")}
        env = {**env, "PYTHONPATH": os.path.join(BUILD, "share", "convtrace", "python")}
        return subprocess.run([sys.executable, "-m", "convtrace", *arguments], env=env, capture_output=True, text=True)

    def test_python_m_convtrace_is_the_program(self):
        self.assertEqual(self.run_module("path").stdout, LIBRARY + "\n")
        result = self.run_module("run", "--dry-run", "--steps", "0-2", "--", "python", "train.py")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("CONVTRACE_STEPS=0-2", result.stdout)
        self.assertEqual(self.run_module("show").returncode, 2)


if __name__ == "__main__":
    unittest.main()

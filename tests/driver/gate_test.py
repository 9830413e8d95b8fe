"""The driver entry gate against NVIDIA's own driver libraries and CUDA runtimes.

usage: gate_test.py CLASS | gate_test.py --record    (writes tests/golden/driver/requests.txt)
"""
import functools
import json
import pathlib
import re
import sys
import tempfile

import stage

VERSIONS = (0, 2000, 3010, 3020, 4000, 5050, 6000, 7000, 8000, 9000, 10000, 10010, 11000, 11010, 11020, 11030, 11040,
            11060, 12000, 12020, 12030, 12040, 12050, 12080, 13000, 14000)
FLAGS = (0, 1, 2)
GOLDEN = stage.ROOT / "tests/golden/driver/requests.txt"
RUNTIMES = {
    "runtime-12.4": ["runtime", stage.WHEELS / "runtime-12.4/nvidia/cuda_runtime/lib/libcudart.so.12"],
    "runtime-13.0": ["runtime", stage.WHEELS / "runtime-13.0/nvidia/cu13/lib/libcudart.so.13"],
    "bindings": ["bindings"],
}
OF_BINDINGS = {"PYTHONPATH": str(stage.WHEELS / "bindings")}


def plain(function):
    """@return the name by which cuGetProcAddress is asked for it."""
    return re.sub(r"(_v\d)?(_ptsz|_ptds)?$", "", function)


@functools.lru_cache(None)
def questions():
    names = {plain(name) for name in stage.gated(memory=True)} | {"cuGraphInstantiateWithFlags"}
    asked = {(name, version, flags) for name in names for version in VERSIONS for flags in FLAGS}
    return sorted(asked | set(stage.requests()))


@functools.lru_cache(None)
def bare_answers(driver):
    return stage.run_python("answers.py", driver=driver, text=json.dumps(questions()))


class AnswersTestCase(stage.DriverTestCase):
    @stage.on_each_driver
    def test_each_request_is_answered_with_the_wrapper_of_the_drivers_own_answer(self, driver):
        for mode in stage.BOTH_MODES:
            wrapped = stage.gated(memory=bool(mode))
            answers = stage.run_python("answers.py", driver=driver, traced=True, text=json.dumps(questions()),
                                       **mode)
            count = 0
            for question, bare, got in zip(questions(), bare_answers(driver), answers):
                expected = [["libconvtrace.so", part[1]] if isinstance(part, list) and part[1] in wrapped else part
                            for part in bare]
                count += expected != bare
                self.assertEqual(got, expected, question)
            self.assertGreater(count, 500)

    @stage.on_each_driver
    def test_no_request_of_the_real_runtimes_gets_past_the_gate(self, driver):
        families = {plain(name) for name in stage.gated(memory=True)}
        for question, bare in zip(questions(), bare_answers(driver)):
            if question in stage.requests() and question[0] in families and bare[4] is not None:
                self.assertIn(bare[4][1], stage.gated(memory=True), question)

    @stage.on_each_driver
    def test_the_fake_driver_answers_as_the_real_one(self, driver):
        table = (stage.ROOT / "tests/fakecuda/versions.inc").read_text()
        rows = re.findall(r"^FAKECUDA_ROW\((\w+), (\d), (\d+), (\w+)\)", table, re.M)
        asked = [(name, int(version) - back, 2 * int(thread)) for name, thread, version, _ in rows for back in (0, 1)]
        answers = stage.run_python("answers.py", driver=driver, text=json.dumps(asked))
        told = [answer[4] and answer[4][1] for answer in answers]
        agreed = 0
        for (name, _, version, function), at, before in zip(rows, told[::2], told[1::2]):
            if at == function:
                agreed += 1
                self.assertNotEqual(before, function, name)
            else:
                self.assertFalse(hasattr(stage.library(driver), function), (name, version, at))
        self.assertGreater(agreed, 150)


def requests_of(software, driver):
    """@return what the software asks cuGetProcAddress for until it fails for want of a device."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o777)
        written = pathlib.Path(folder) / "requests"
        stage.run_python("taken.py", *RUNTIMES[software], driver=driver, CONVTRACE_TEST_REQUESTS=str(written),
                         LD_AUDIT=str(stage.PROGRAMS / "libdriver_requests.so"), **OF_BINDINGS)
        rows = (line.split() for line in written.read_text().splitlines())
        return {(name, int(version), int(flags)) for name, version, flags in rows}


class RequestsTestCase(stage.DriverTestCase):
    @stage.on_each_driver
    def test_runtimes_request_what_the_golden_list_says(self, driver):
        for software in RUNTIMES:
            listed = {request for request, users in stage.requests().items() if software in users}
            self.assertEqual(requests_of(software, driver), listed, software)

    @stage.on_each_driver
    def test_every_gated_function_that_they_fetch_is_ours_in_their_memory(self, driver):
        answers = dict(zip(questions(), bare_answers(driver)))
        for mode in stage.BOTH_MODES:
            for software, arguments in RUNTIMES.items():
                fetched = {answers[request][4][1] for request, users in stage.requests().items()
                           if software in users and answers[request][4] is not None}
                expected = fetched & stage.gated(memory=bool(mode))
                taken = stage.run_python("taken.py", *arguments, driver=driver, traced=True, **OF_BINDINGS, **mode)
                self.assertEqual(expected - set(taken), set(), software)
                self.assertGreater(len(expected), 15)


class CallsTestCase(stage.DriverTestCase):
    @stage.on_each_driver
    def test_gated_functions_answer_the_same_with_and_without_the_preload(self, driver):
        names = "\n".join(sorted(stage.gated(memory=True))) + "\n"
        bare = stage.run([stage.PROGRAMS / "driver_calls"], driver=driver, text=names)
        self.assertIn("cuInit %d\n" % stage.NO_DEVICE, bare.stdout)
        self.assertGreater(len(bare.stdout.splitlines()), 2 * 3 * 40)
        for mode in stage.BOTH_MODES:
            done = stage.run([stage.PROGRAMS / "driver_calls"], driver=driver, traced=True, text=names,
                             CONVTRACE_OUTPUT=str(self.folder / "c.ctrace"), **mode)
            self.assertEqual(done.stdout.splitlines(), bare.stdout.splitlines())
            self.assertEqual(done.returncode, bare.returncode)


def record():
    users = {}
    for software in RUNTIMES:
        for request in requests_of(software, "550"):
            users.setdefault(request, []).append(software)
    lines = ["# What CUDA runtimes and cuda-bindings ask cuGetProcAddress for: name, version, flags, who.\n",
             "# Written by tests/driver/gate_test.py --record.\n"]
    lines += ["%s %d %d %s\n" % (*request, " ".join(sorted(names))) for request, names in sorted(users.items())]
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("".join(lines))


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record()
    else:
        stage.main()

"""Convtrace's assumptions about the driver's library: its functions, numbers of callbacks, rules of injection."""
import ctypes
import os
import re
import struct
import sys

import stage

JUMP = b"\xff\x25"  # jmp *offset(%rip)


def slot(library, name):
    """@return the address of the pointer that the exported function jumps through, None if it does not begin so."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    code = ctypes.string_at(address, 32)
    at = code.find(JUMP)
    return address + at + 6 + struct.unpack_from("<i", code, at + 2)[0] if at >= 0 else None


class CallbacksTestCase(stage.DriverTestCase):
    @stage.on_each_driver
    def test_numbers_of_callbacks_are_those_of_the_headers_that_we_are_built_with(self, driver):
        header = (stage.ROOT / ".venv/cuda/include/cupti_driver_cbid.h").read_text()
        numbers = dict(re.findall(r"CUPTI_DRIVER_TRACE_CBID_(cu\w+)\s*=\s*(\d+)", header))
        library = stage.library(driver)
        base = slot(library, "cuInit") - 8 * int(numbers["cuInit"])
        compared = 0
        for name, number in numbers.items():
            if hasattr(library, name) and slot(library, name) is not None:
                compared += 1
                self.assertEqual(slot(library, name), base + 8 * int(number), name)
        self.assertGreater(compared, 500)


class FunctionsTestCase(stage.DriverTestCase):
    @stage.on_each_driver
    def test_the_driver_has_what_the_engine_calls(self, driver):
        rows = (stage.ROOT / "cupti/driver/api.h").read_text().replace("\\\n", " ")
        needed = re.findall(r'X\((\w+), \w+,\s+"(\w+)",\s+(true|false)\)', rows)
        self.assertGreater(len(needed), 30)
        library = stage.library(driver)
        missing = {name for _, name, required in needed if not hasattr(library, name)}
        self.assertEqual(missing & {name for _, name, required in needed if required == "true"}, set())
        if int(driver) >= 550:  # CUDA 12.4, the oldest with full operands
            self.assertEqual(missing, set())

    @stage.on_each_driver
    def test_the_driver_has_the_functions_that_the_gate_wraps(self, driver):
        missing = {name for name in stage.gated(memory=True) if not hasattr(stage.library(driver), name)}
        new = {"cuGreenCtxDestroy", "cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph_ptsz"}
        self.assertLessEqual(missing, new if int(driver) < 550 else set())


CALL_TWICE = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); print(cuda.cuInit(0)); print(cuda.cuInit(0))"


class InjectionTestCase(stage.DriverTestCase):
    def init_twice(self, driver, path, answer="1", **options):
        done = stage.run([sys.executable, "-u", "-c", CALL_TWICE], driver=driver, CUDA_INJECTION64_PATH=str(path),
                         CONVTRACE_TEST_INJECTION=answer, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    @stage.on_each_driver
    def test_the_driver_calls_an_injection_once_inside_cuInit_on_its_thread(self, driver):
        path = stage.PROGRAMS / "libdriver_injection.so"
        self.assertEqual(self.init_twice(driver, path), ["called on the main thread", "100", "100"])

    @stage.on_each_driver
    def test_an_injection_that_fails_is_called_again(self, driver):
        path = stage.PROGRAMS / "libdriver_injection.so"
        called = "called on the main thread"
        self.assertEqual(self.init_twice(driver, path, "0"), [called, "100", called, "100"])

    @stage.on_each_driver
    def test_an_injection_that_is_missing_or_none_is_passed_over_in_silence(self, driver):
        for path in ("/nonexistent/injection.so", "none", stage.PROGRAMS / "libdriver_requests.so"):
            self.assertEqual(self.init_twice(driver, path), ["100", "100"], path)

    @stage.on_each_driver
    def test_a_relative_path_is_that_of_the_current_folder_and_a_bare_name_is_searched_for(self, driver):
        called = ["called on the main thread", "100", "100"]
        path = stage.PROGRAMS / "libdriver_injection.so"
        self.assertEqual(self.init_twice(driver, os.path.join(".", os.path.relpath(path))), called)
        self.assertEqual(self.init_twice(driver, path.name, libraries=[path.parent]), called)
        self.assertEqual(self.init_twice(driver, path.name), ["100", "100"])

    @stage.on_each_driver
    def test_an_injection_may_call_cuInit(self, driver):
        path = stage.PROGRAMS / "libdriver_injection.so"
        nested = self.init_twice(driver, path, "nested")
        self.assertEqual(nested, ["called on the main thread", "cuInit inside: 100", "100", "100"])


if __name__ == "__main__":
    stage.main()

"""Describes this machine: device, driver, libcupti, the Python of the workloads and its packages."""
import ctypes
import glob
import json
import os
import subprocess
import sys

PACKAGES = ("torch", "triton", "cupy", "jax", "transformers", "torchvision", "numpy",
            "nvidia-cuda-runtime", "nvidia-cuda-cupti")
FAKE = "Fake device"  # how the driver double of the tests calls its devices
CPU = "no GPU"  # what results of workloads on the CPU have as their device


def is_hardware(device):
    return device != CPU and not device.startswith(FAKE)


def driver():
    """(name of device 0, version of the driver as "13.0"); (None, why) without a device."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "no CUDA driver: libcuda.so.1 is not found"
    result = library.cuInit(0)
    count = ctypes.c_int()
    if result != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None, "the CUDA driver has no device (cuInit says %d)" % result
    name = ctypes.create_string_buffer(256)
    device, version = ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), 0)
    library.cuDeviceGetName(name, len(name), device)
    library.cuDriverGetVersion(ctypes.byref(version))
    return name.value.decode(), "%d.%d" % (version.value // 1000, version.value % 1000 // 10)


def kernel_module_version():
    """The version of NVIDIA's kernel module, None where it does not say."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word.count(".") >= 1 and word[0].isdigit()), None)


def find_cupti(python, driver):
    """A libcupti for programs that bring none, in the engine's order: the newest of those that are not newer than the
    driver comes first. None: the loader's search has to do. @param driver  its version, as driver() tells it."""
    given = os.environ.get("CONVTRACE_CUPTI")
    if given:
        return given
    code = "import sys; print(chr(10).join(p for p in sys.path if p))"
    folders = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True).stdout.split("\n")
    patterns = [os.path.join(folder, "nvidia", "*", "lib", "libcupti.so.1[23]") for folder in folders if folder]
    patterns += ["/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1[23]", "/usr/local/cuda*/lib64/libcupti.so.1[23]"]
    def fitness(path):
        major = int(path.rsplit(".", 1)[1])
        return major <= int(driver.split(".")[0]), major

    # max: of equals the first, and so the Python's before the toolkit's
    return max((path for pattern in patterns for path in sorted(glob.glob(pattern))), key=fitness, default=None)


def versions(python):
    """Installed versions of PACKAGES, without importing them."""
    code = """if True:
        import importlib.metadata as metadata, json, sys
        found = {"python": sys.version.split()[0]}
        for name in sys.argv[1:]:
            for dist in (name, name + "-cuda13x", name + "-cuda12x", name + "-gpu", name + "-cu12"):
                try:
                    found[name] = metadata.version(dist)
                    break
                except metadata.PackageNotFoundError:
                    pass
        print(json.dumps(found))"""
    done = subprocess.run([python, "-c", code, *PACKAGES], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def choose_python(root):
    """The Python of the workloads: the one that runs this if it has PyTorch, else the checkout's."""
    own = root / ".venv" / "bin" / "python"
    has_torch = subprocess.run([sys.executable, "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"])
    return sys.executable if has_torch.returncode == 0 or not own.exists() else str(own)


def absolute(program):
    """A program's path that holds in every folder; links stay, for a virtual environment is one."""
    return os.path.abspath(program) if os.sep in program else program


def torch_trouble(python, device):
    """None if PyTorch of `python` can use the device ("cuda", "cpu"), else why not."""
    code = "import torch, sys; sys.exit(%s)" % (
        "0 if torch.cuda.is_available() else 'PyTorch sees no CUDA device'" if device == "cuda" else "0")
    try:
        done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "PyTorch was not imported within 120 s"
    return None if done.returncode == 0 else (done.stderr.strip() or "no PyTorch").split("\n")[-1]

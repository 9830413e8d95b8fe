"""Fetches what the tests of stage `driver` run on, and installs nothing: NVIDIA's driver library of several
versions (Debian packages, unpacked), and CUDA runtimes, cuda-bindings and CUPTI (wheels, unpacked).

usage: fetch.py FOLDER

FOLDER gets drivers/VERSION/libcuda.so.1, wheels/NAME/... and `result`, a line: which drivers there are, and why not
others.
What is there already is not fetched again. Exit: 0 where at least one driver and all wheels are there, 77 else.
"""
import pathlib
import shutil
import subprocess
import sys
import zipfile

PACKAGE = "libcuda1"
SUITES = {"535": "bookworm", "550": "trixie", "555": "experimental"}
WHEELS = {
    "runtime-12.4": "nvidia-cuda-runtime-cu12==12.4.127",
    "runtime-13.0": "nvidia-cuda-runtime==13.0.96",
    "bindings": "cuda-bindings==13.0.3",
    "cupti-12.4": "nvidia-cuda-cupti-cu12==12.4.127",
    "cupti-13.0": "nvidia-cuda-cupti==13.0.85",
}
KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Missing(Exception):
    pass


def run(*command, **options):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from None
    if done.returncode != 0:
        raise Missing("%s: %s" % (pathlib.Path(command[0]).name, (done.stderr.strip() or "failed").splitlines()[-1]))
    return done.stdout


def debian_archive():
    """@return where this machine gets Debian's packages from."""
    targets = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    for line in targets.splitlines():
        origin, component, uri = line.split(" ", 2)
        debian = origin == "Debian" or uri.rstrip("/").endswith("/debian")  # no origin before the first update
        if debian and component == "main" and "security" not in uri:
            return uri
    raise Missing("apt knows no archive of Debian's packages")


def private_apt(folder, kind, suites, component):
    """@return options by which apt-get uses an index of its own below `folder`, without the machine's: of `kind` deb or deb-src."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    signed = "[signed-by=%s] " % KEYRING if KEYRING.exists() else ""
    archive = debian_archive()
    lines = ["%s %s%s %s %s\n" % (kind, signed, archive, suite, component) for suite in suites]
    (folder / "sources.list").write_text("".join(lines))
    values = {"Dir::State": folder, "Dir::State::Lists": folder / "lists", "Dir::State::status": folder / "status",
              "Dir::Cache": folder, "Dir::Cache::archives": folder / "archives", "Dir::Etc::SourceParts": "/dev/null",
              "Dir::Etc::SourceList": folder / "sources.list", "Acquire::Languages": "none", "Acquire::Retries": "2",
              "APT::Sandbox::User": "root", "APT::Architecture": "amd64"}
    return [part for name, value in values.items() for part in ("-o", "%s=%s" % (name, value))]


def fetch_drivers(folder, missing):
    wanted = [version for version in SUITES if not (folder / version / "libcuda.so.1").exists()]
    if not wanted:
        return
    try:
        apt = ["apt-get", *private_apt(folder / "apt", "deb", SUITES.values(), "non-free")]
        run(*apt, "update")
    except Missing as reason:
        missing += ["driver %s: %s" % (version, reason) for version in wanted]
        return
    for version in wanted:
        try:
            unpack_driver(apt, folder, version)
        except Missing as reason:
            missing.append("driver %s: %s" % (version, reason))


def unpack_driver(apt, folder, version):
    fresh = folder / "unpacked"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    run(*apt, "download", "%s/%s" % (PACKAGE, SUITES[version]), cwd=fresh)
    package = next(fresh.glob("*.deb"))
    if not package.name.startswith("%s_%s." % (PACKAGE, version)):
        raise Missing("the archive has %s instead" % package.name)
    run("dpkg-deb", "-x", str(package), str(fresh))
    library = next(path for path in fresh.rglob("libcuda.so.%s.*" % version))
    target = folder / version
    target.mkdir(exist_ok=True)
    shutil.move(str(library), target / "libcuda.so.1")
    shutil.rmtree(fresh)


def fetch_wheel(folder, name):
    if (folder / name / "complete").exists():
        return
    shutil.rmtree(folder / name, ignore_errors=True)
    fresh = folder / "fetched"
    shutil.rmtree(fresh, ignore_errors=True)
    run(sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:", "-d", str(fresh),
        WHEELS[name])
    with zipfile.ZipFile(next(fresh.glob("*.whl"))) as wheel:
        wheel.extractall(folder / name)
    shutil.rmtree(fresh)
    (folder / name / "complete").touch()


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    missing = []
    (folder / "drivers").mkdir(parents=True, exist_ok=True)
    fetch_drivers(folder / "drivers", missing)
    (folder / "wheels").mkdir(exist_ok=True)
    for name in WHEELS:
        try:
            fetch_wheel(folder / "wheels", name)
        except Missing as reason:
            missing.append("%s: %s" % (WHEELS[name], reason))
    drivers = [version for version in SUITES if (folder / "drivers" / version / "libcuda.so.1").exists()]
    complete = drivers and all((folder / "wheels" / name / "complete").exists() for name in WHEELS)
    parts = ["ran on " + ", ".join(drivers) if complete else "skipped", *missing]
    (folder / "result").write_text("driver libraries: %s\n" % "; ".join(parts))
    print((folder / "result").read_text(), end="")
    return 0 if complete else 77


if __name__ == "__main__":
    sys.exit(main())

"""Trains in processes of odd kinds, one forked child for each: what is closed, limited, unshared, interrupted, killed; how
threads, signals, hooks of the interpreter and children go about it. Prints how each ended and what it said.

usage: odd.py [CASE...]
"""
import atexit
import ctypes
import faulthandler
import gc
import importlib
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
import warnings

import torch
from torch import nn

# The modules that the first step would import. The parent imports them once, and trains nothing.
for name in "torch._dynamo", "torch.profiler._cupti_monitor":
    try:
        importlib.import_module(name)
    except ImportError:
        pass

MANY = 300  # exceptions
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x40000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
MS_RDONLY, MS_REC_PRIVATE, MNT_DETACH = 1, 0x44000, 2
libc = ctypes.CDLL(None, use_errno=True)


def train(steps=4, seed=0, behind=lambda step: None):
    """@return the losses, as bits"""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(torch.rand(16, 8, generator=generator)), torch.ones(16, 2))
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        behind(step)
    return losses


CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def simple(name, prepare):
    """Adds a case that trains after `prepare()`."""
    def trained(say):
        prepare()
        say(train())
    CASES[name] = trained


def limit(what, value):
    return lambda: resource.setrlimit(what, (value, value))


def in_use(what=0):
    """Bytes of its address space, 0, or of its data, 5."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[what]) * resource.getpagesize()


def unshare(*flags):
    """False where that takes more rights than this process has."""
    return libc.unshare(sum(flags)) == 0


def own_mounts():
    if not unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) != 0:
        return False
    return True


def without_proc():
    if own_mounts():
        libc.umount2(b"/proc", MNT_DETACH)


def small_shared_memory():
    if own_mounts():
        libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4k")


def output(path):
    """Where the trace of this process is to go."""
    os.environ["CONVTRACE_OUTPUT"] = path


def into_read_only_folder():
    """No rights stop root, but a file system that is read-only does."""
    folder = tempfile.mkdtemp(dir=os.getcwd())
    if own_mounts():
        libc.mount(b"tmpfs", folder.encode(), b"tmpfs", MS_RDONLY, None)
    os.chmod(folder, 0o555) if os.access(folder, os.W_OK) else None
    output(os.path.join(folder, "%p.ctrace"))


def closed(*numbers):
    for number in numbers:
        os.close(number)


simple("nothing_odd", lambda: None)
simple("no_standard_streams", lambda: closed(0, 1, 2))
simple("no_standard_output", lambda: closed(1))
simple("few_descriptors", lambda: limit(resource.RLIMIT_NOFILE, 8)())
simple("no_descriptors", lambda: limit(resource.RLIMIT_NOFILE, 0)())
simple("little_memory", lambda: limit(resource.RLIMIT_AS, in_use() + (256 << 20))())
simple("little_data", lambda: limit(resource.RLIMIT_DATA, in_use(5) + (256 << 20))())
simple("small_stack", lambda: limit(resource.RLIMIT_STACK, 256 << 10)())
simple("no_processes", lambda: limit(resource.RLIMIT_NPROC, 1)())
simple("small_files", lambda: limit(resource.RLIMIT_FSIZE, 4096)())
simple("no_files", lambda: limit(resource.RLIMIT_FSIZE, 0)())
simple("no_core", lambda: limit(resource.RLIMIT_CORE, 0)())
simple("elsewhere", lambda: os.chdir("/"))
simple("namespaces", lambda: unshare(CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET))
simple("without_proc", without_proc)
simple("small_shared_memory", small_shared_memory)
simple("other_user", lambda: os.setuid(65534) if os.getuid() == 0 else None)
simple("shallow", lambda: sys.setrecursionlimit(120))
simple("collected_at_once", lambda: gc.set_threshold(1, 1, 1))
simple("without_collector", gc.disable)
simple("memory_traced", lambda: tracemalloc.start(20))
simple("warnings_are_errors", lambda: warnings.simplefilter("error"))
simple("nobody_may_read", lambda: os.umask(0o777))
simple("no_environment", os.environ.clear)
simple("read_only_folder", into_read_only_folder)
simple("full_device", lambda: output("/dev/full"))


@case
def deep(say):
    """Trains where fewer and fewer calls may nest, until there are too few to train, and then again."""
    limit, ended = sys.getrecursionlimit(), 0

    def train_at(depth):
        return train(1) if depth == 0 else train_at(depth - 1)
    sys.setrecursionlimit(300)
    for depth in range(200, 300):
        try:
            train_at(depth)
        except RecursionError:
            ended += 1
    sys.setrecursionlimit(limit)
    say(ended > 0, train())


@case
def other_user_namespace(say):
    say("permitted:", unshare(CLONE_NEWUSER))
    say(train(), os.getuid())


@case
def other_process_namespace(say):
    """The first process of a namespace, whose number is 1, and one that it starts."""
    say("permitted:", unshare(CLONE_NEWPID))
    if os.fork() == 0:
        say(train(), os.getpid() == 1)
        if os.fork() == 0:
            say(train(2), os.getppid() == 1)
            os._exit(5)
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    say(os.waitstatus_to_exitcode(os.wait()[1]))


@case
def daemon(say):
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in 0, 1, 2:
        os.dup2(null, number)
    say(train())
    os._exit(0)


@case
def threads(say):
    found = {}
    at_once = threading.Barrier(8)

    def train_own(number):
        at_once.wait()
        found[number] = train(6, number)
    all_ = [threading.Thread(target=train_own, args=[number]) for number in range(8)]
    for one in all_:
        one.start()
    for one in all_:
        one.join()
    say([found[number] for number in range(8)])


@case
def daemon_thread(say):
    begun = threading.Event()
    threading.Thread(target=lambda: train(1 << 30, behind=lambda step: begun.set()), daemon=True).start()
    begun.wait()
    say("ends while a thread trains")
    os._exit(4)


@case
def at_exit(say):
    class Last:
        def __del__(self):
            say("died", train(2))
    atexit.register(lambda: say("at exit", train(2)))
    say(train(behind=lambda step: Last()))


@case
def handlers(say):
    """Signals that Python handles, in the middle of training; what they raise is not lost."""
    got = []
    for number in signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM:
        signal.signal(number, lambda given, frame: got.append(given))
    losses = train(4, behind=lambda step: os.kill(os.getpid(), [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM][step]))
    say(losses, [int(number) for number in got])


@case
def interrupted(say):
    """Exceptions are raised at arbitrary places. Each one is caught, or reported as one that cannot be caught, and hardly any
    has passed through frames that are neither the program's nor PyTorch's."""
    class Now(BaseException):
        pass

    def raise_now(given, frame):
        if armed:
            armed.clear()
            counts[0] += 1
            raise Now

    def not_raisable(given):
        counts[1] += isinstance(given.exc_value, Now)

    say(train())  # tracing has begun
    armed, counts, tracebacks, begin = [], [0, 0], [], time.monotonic()
    sys.unraisablehook = not_raisable
    signal.signal(signal.SIGALRM, raise_now)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.0013)
    while time.monotonic() < begin + 1 or counts[0] <= MANY and time.monotonic() < begin + 60:  # on a busy machine it takes longer
        torch.set_grad_enabled(True)  # a context that was left in the middle may have left it off
        try:
            armed.append(True)
            train(3)
            armed.clear()
        except Now as error:
            counts[1] += 1
            tracebacks.append([frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)])
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    sys.unraisablehook = sys.__unraisablehook__
    torch.set_grad_enabled(True)
    say("exceptions lost:", counts[0] - counts[1], "many:", counts[0] > MANY, train())
    foreign = sum(any("convtrace_observer" in path for path in paths) for paths in tracebacks)
    say("more than few with foreign frames:", foreign > len(tracebacks) // 20)


@case
def forks(say):
    """Children before, in and behind training; each says what it computes."""
    def child(steps):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write_end, repr(train(steps)).encode())
            os._exit(steps)
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            return pipe.read(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    say(child(1))
    say(train(12, behind=lambda step: say(child(2))))
    say(subprocess.run(["/bin/echo", "executed"], stdout=subprocess.PIPE).stdout,
        subprocess.run([sys.executable, "-S", "-c", "print(6 * 7)"], stdout=subprocess.PIPE).stdout, os.system("exit 3"))
    os.posix_spawn("/bin/true", ["true"], os.environ)
    say(os.wait()[1], train())


@case
def executes(say):
    say(train())
    os.execv("/bin/sh", ["sh", "-c", "exit 5"])


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((8,), float(index)), train(1, index)[0]


@case
def workers(say):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Linear(8, 1)
        with torch.no_grad():
            model.weight.fill_(0.1), model.bias.zero_()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for epoch in range(2):
            for values, texts in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2):
                optimizer.zero_grad()
                loss = model(values).square().mean()
                loss.backward()
                optimizer.step()
                say(epoch, loss.item().hex(), texts)


def pooled(seed):
    return train(2, seed)


def shared_step(model, seed):
    x = torch.rand(4, 8, generator=torch.Generator().manual_seed(seed))
    model(x).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad


@case
def pools(say):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        say(pool.map(pooled, range(4)))
    say(train())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        say(pool.map(pooled, range(4)))
    model = nn.Linear(8, 1)
    with torch.no_grad():
        model.weight.fill_(0.1), model.bias.zero_()
    model.share_memory()  # what hogwild does, but in turn
    for seed in range(3):
        one = torch.multiprocessing.get_context("fork").Process(target=shared_step, args=(model, seed))
        one.start()
        one.join()
        say(one.exitcode, model.weight.sum().item().hex())


def beside_others(model, barrier):
    """Its updates and those of the others overwrite each other."""
    barrier.wait()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for seed in range(20):
        optimizer.zero_grad()
        x = torch.rand(4, 8, generator=torch.Generator().manual_seed(seed))
        (model(x) - 1).square().mean().backward()
        optimizer.step()


@case
def hogwild(say):
    """Three processes train the same weights at once, so that the weights are never the same twice."""
    kinds = torch.multiprocessing.get_context("fork")
    model, barrier = nn.Linear(8, 1), kinds.Barrier(3)
    with torch.no_grad():
        model.weight.fill_(0.5), model.bias.fill_(1)
    model.share_memory()
    all_ = [kinds.Process(target=beside_others, args=(model, barrier)) for _ in range(3)]
    for one in all_:
        one.start()
    for one in all_:
        one.join()
    say([one.exitcode for one in all_], bool((model.weight < 0.5).all()), bool(model.weight.isfinite().all()), train())


@case
def interpreters(say):
    say(train())  # before: PyTorch's engine refuses to work behind the end of one
    try:
        import _xxsubinterpreters as inner
    except ImportError:
        return
    one = inner.create()
    inner.run_string(one, "import math, threading; assert math.pi > 3")
    inner.destroy(one)


@case
def killed_rank(say):
    folder = tempfile.mkdtemp()

    def rank(number):
        torch.distributed.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=number, world_size=2)
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        try:
            for step in range(4):
                if number == 1 and step == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                model(torch.ones(1, 4)).sum().backward()
                if number == 0:
                    say(step)
        except RuntimeError:
            say("the other one is gone")
        os._exit(6)

    children = []
    for number in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            rank(number)
    say([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])


@case
def crash_told(say):
    faulthandler.enable(say.descriptor)
    train()
    os.kill(os.getpid(), signal.SIGSEGV)


def dies_of(name, number):
    def dies(say):
        say(train())
        os.kill(os.getpid(), number)
        time.sleep(60)
    CASES[name] = dies


for name in "TERM", "HUP", "USR1", "USR2", "ABRT", "SEGV", "BUS", "ALRM":
    dies_of("dies_of_" + name, getattr(signal, "SIG" + name))


def steps_on_disk(pid):
    """Steps with values that can be read from the trace of a process, which is under way."""
    trace = os.environ["CONVTRACE_OUTPUT"].replace("%p", str(pid))
    shown = subprocess.run([os.environ["SHOW"], "show", "--json", trace], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return set(re.findall(rb'"record":"stats",.*?"step":(\d+)', shown))


@case
def dies_of_KILL(say):
    """A forked process kills this one after its steps were written to disk."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.read(read_end, 1)
        end = time.monotonic() + 60
        while "LD_PRELOAD" in os.environ and len(steps_on_disk(os.getppid())) < 4 and time.monotonic() < end:
            time.sleep(0.1)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    say(train())
    os.write(write_end, b".")
    time.sleep(90)


class Say:
    """Writes a child's output to a pipe, since streams, files and folders may be gone."""

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def __call__(self, *words):
        os.write(self.descriptor, (" ".join(map(str, words)) + "\n").encode())


gc.collect()
gc.freeze()  # children neither walk nor copy what was imported
for name in [word for word in sys.argv[1:] if not word.startswith("--")] or CASES:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.environ["CONVTRACE_OUTPUT"] = os.path.join(os.getcwd(), name + "-%p.ctrace")
        CASES[name](Say(write_end))
        sys.exit()
    os.close(write_end)
    with os.fdopen(read_end, errors="replace") as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(name, status, re.sub("0x0000[0-9a-f]+", "ADDRESS", text), flush=True)

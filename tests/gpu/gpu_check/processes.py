"""Children of this command, each the head of a group of its own, so that none is left behind when it ends."""
import os
import signal
import subprocess
import threading

_started = []
_lock = threading.Lock()


def start(command, **options):
    """A process, as of subprocess.Popen."""
    with _lock:  # kill_all must not miss one that is being started
        _started[:] = [one for one in _started if one.returncode is None]
        _started.append(subprocess.Popen(command, text=True, start_new_session=True, **options))
        return _started[-1]


def kill(process):
    """Kills a process that was not waited for yet, with all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_all():
    # Without the lock: this runs in a signal handler, and the thread below it may hold the lock.
    for process in list(_started):
        if process.returncode is None:
            kill(process)

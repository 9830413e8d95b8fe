"""Reads a trace while it is written."""
import os
import select
import socket

from . import records
from .trace import Definitions, Problem, Trace


class LiveTrace(Trace):
    """A trace that another process may be writing. Iterating gives None when there is no further event now; continue the
    iteration to check again. It ends when the trace is closed or its writer is gone."""

    def __init__(self, path):
        super().__init__(path, live=True)

    def __iter__(self):
        definitions, writer, ended = Definitions(), _Writer(), self.file.closed
        taken = damages = 0
        while True:
            found, taken = self.file.records[taken:], len(self.file.records)
            if any(record.header.kind == records.META for record in found):
                self.meta = self._read_meta()
            self.problems += [Problem(*one) for one in self.file.damage[damages:] if one not in self._found]
            damages = len(self.file.damage)
            for record in found:
                yield from self._events_in(record, definitions)
            if ended:
                return
            yield None
            ended = self.file.closed or writer.is_gone(self.meta)
            self.file.refresh(ended)


class _Writer:
    """The process that writes a trace. If it cannot be watched, for example on another host, it counts as running until the
    trace is closed."""

    def __init__(self):
        self._process = None  # its pidfd, as a number may be used again

    def __del__(self):
        if self._process is not None:
            os.close(self._process)

    def is_gone(self, meta):
        if not meta.get("pid") or meta["host"] != socket.gethostname():
            return False
        try:
            if not hasattr(os, "pidfd_open"):  # Python 3.8
                os.kill(meta["pid"], 0)
                return False
            if self._process is None:
                self._process = os.pidfd_open(meta["pid"])
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return bool(select.select([self._process], [], [], 0)[0])

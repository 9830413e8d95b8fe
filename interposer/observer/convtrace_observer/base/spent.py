"""Estimates the time that the observer's Python takes: one of 61 calls is timed and counts 61 times.

61 is prime, so that in a program with the same calls in each step all of them are timed in turn. The engine measures
its own part in every call. Neither measures the frames of each module call and backward pass (look-ups in dictionaries and
a few words written), the call of a hook by autograd, the allocator's reports, or indirect slowdown of the program. The time of a call
includes reading the clock. docs/limits.md has measurements.
"""
import functools
import time

EVERY = 61
clock = time.thread_time_ns


def sampled(method):
    """Decorates a method that takes the thread's state first and ends with Observer.submit. A nested call counts as part
    of the outer one."""

    @functools.wraps(method)
    def timed(self, thread, *args):
        thread.until_timed -= 1
        if thread.until_timed > 0 or thread.began:
            return method(self, thread, *args)
        thread.until_timed = EVERY
        thread.began = clock()
        try:
            return method(self, thread, *args)
        finally:
            thread.spent += clock() - thread.began
            thread.began = 0

    return timed


def submit(thread):
    """Sends the batch of a timed call, with its time so far. The engine's part is left out."""
    thread.spent += clock() - thread.began
    thread.batch.spent(EVERY * thread.spent)
    thread.spent = 0
    try:
        return thread.batch.submit()
    finally:
        thread.began = clock()

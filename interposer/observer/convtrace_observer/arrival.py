"""Waits for the program's own `import torch`, then starts the observer.

Nothing here touches torch, imports anything of weight or prints: this module is loaded in every
Python process of a traced job, also in those that never train.
"""
from .base import imports


def _start(torch):
    try:
        from . import observer

        observer.start(torch)
    except Exception:
        pass  # the program must not notice


def install():
    imports.watch("torch", lambda torch: _start(torch))

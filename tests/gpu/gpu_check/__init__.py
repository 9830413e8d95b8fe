"""Checks of convtrace that need a GPU, as one command: tools/gpu-check."""

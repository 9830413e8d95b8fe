"""Tells the engine which module, step, phase, tensor and custom op the program is at.

Pure Python, no dependency, and it never imports torch: `arrival` waits until the program does.
Read in this order: arrival, observer, modules, naming, scopes, steps, gradients, values, engine.
"""

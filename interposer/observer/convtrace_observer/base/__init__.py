"""The way to the engine: its interface, where threads are, tensors and what the observer costs."""
import os

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # all of our Python; on PYTHONPATH

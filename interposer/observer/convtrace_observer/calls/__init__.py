"""Calls of modules and custom ops, with their names and values."""

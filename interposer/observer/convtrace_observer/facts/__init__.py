"""Facts: everything but tensors that decides the results of a program."""

"""What is computed again: losses by the observer, parts of the forward pass by the program."""

"""What decides the results of a program and is no tensor."""

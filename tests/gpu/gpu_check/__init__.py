"""What only a GPU can show about convtrace, as one command: tools/gpu-check."""

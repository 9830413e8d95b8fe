"""Records the calls of Inductor's code inside regions that torch.compile made, as scopes and values."""

"""What runs inside regions that torch.compile made: Inductor's calls, as scopes and values."""

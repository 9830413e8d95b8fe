"""Steps, backward passes, clipping and optimizers."""

"""What is computed again, losses by the observer and parts of the forward pass by the program; and what is read again."""

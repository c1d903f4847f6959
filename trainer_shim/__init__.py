"""What runs beside and inside the user's training process. Standard library only."""

"""PyTorch: a program's own training loops, Lightning, and the Hugging Face Trainer.

Scripts need no change.
"""

"""PyTorch.

Training loops of a program's own, Lightning and the Hugging Face Trainer, script unchanged.
"""

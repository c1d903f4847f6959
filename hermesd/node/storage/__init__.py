"""What lies on the node's disk.

Trials' folders, checkpoints and their copies, code, and the budget for all of it.
"""

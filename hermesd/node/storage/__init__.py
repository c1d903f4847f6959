"""What the node keeps on disk: trial folders, checkpoints and their copies, and code.

The disk budget bounds all of it. Nothing here runs a trial: `runner` may not enter.
"""

"""Between a program, its host and the node daemon.

Frames, the page of shared memory, the agent's end.
"""

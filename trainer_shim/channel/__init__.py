"""Communication between a program, its host and the node daemon.

Frames, the shared memory page, and the agent's end of the channel.
"""

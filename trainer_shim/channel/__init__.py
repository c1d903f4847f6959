"""How a program, its host and the node daemon talk: frames, a shared page, the agent's end.

Nothing else of `trainer_shim` may enter.
"""

"""What can be learned of a program from outside: command, source, frameworks, connections, exit.

Nothing else of `trainer_shim` may enter.
"""

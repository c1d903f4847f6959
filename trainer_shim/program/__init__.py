"""What can be learned about a program from outside: command line, source, frameworks, exit.

Nothing else of `trainer_shim` may enter.
"""

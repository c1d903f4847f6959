"""What can be told of a program from outside.

Its command line, its source files, its frameworks, its end.
"""

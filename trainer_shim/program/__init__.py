"""What can be learned about a program from outside.

Its command line, source files, frameworks and exit.
"""

"""Finds a program's metrics in what it prints, in what it gives to a logger, and in its files.

Only what the program imports itself may be imported, and its output, logging and files must
pass through unchanged.
"""

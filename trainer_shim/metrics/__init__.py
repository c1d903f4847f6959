"""Metrics of a program as it is: in what it prints, in what it gives to a logger, in its files.

Rule: nothing is imported that the program does not import itself, and nothing that it does becomes
another: what it prints, logs and writes is looked at on its way.
"""

"""The small process that owns one live trial.

It starts, watches, suspends and ends the program.
"""

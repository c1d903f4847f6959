"""Restores what a program must find when it is run again from its first line.

Files, databases, temporary names and the time of day.
"""

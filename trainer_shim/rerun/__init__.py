"""Restores what a program must find when it is run again from its first line.

Seeds, files and time of day.
"""

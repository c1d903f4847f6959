"""What a program that is run again from its first line must find.

Seeds, files, time of day.
"""

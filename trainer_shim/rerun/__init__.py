"""Restores what a program must find when it is run again from its first line.

Files, databases, temporary names and the time of day. What training needs (weights, random numbers)
is the adapters': neither they nor `host` may enter.
"""

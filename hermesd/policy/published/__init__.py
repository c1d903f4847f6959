"""Scheduling policies from published papers, one file each, with their source.

They may not import each other, except for `rungs`, which is shared by those that compare trials
at rungs.
"""

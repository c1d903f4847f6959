"""Reads a study file into a typed tree with positions, makes a StudySpec of it, and writes it back.

Nothing here contacts a head, so neither `sdk` nor anything above it may enter.
"""

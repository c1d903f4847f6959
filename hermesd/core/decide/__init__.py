"""Decides, from the state, who runs next, where and why.

Pure: it reads the state and returns commands.
"""

"""Policies of papers.

One file each, with their source; `rungs` is what those that compare trials at rungs share.
"""

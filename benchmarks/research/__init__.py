"""Benchmarks that answered a question once: the papers' figures, other kinds of curves, floors.

Kept so that their answers can be had again, by the command that each names; not part of
`python -m benchmarks`, and without a promise that a later version gives the same figures.
"""

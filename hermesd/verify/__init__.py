"""The engine of `hermesctl verify-resume`.

It runs one trial with and without suspends and compares the two bit for bit.
"""

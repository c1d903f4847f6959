"""The engine of `hermesctl verify-resume`: runs a trial with and without suspends, and compares.

It uses a node's parts without a daemon and without a head, so `head` may not enter.
"""

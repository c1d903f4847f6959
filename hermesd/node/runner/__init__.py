"""Runs one trial on this node: starts its host, sends it requests, listens to it, and cleans up.

What becomes of a trial is decided by the state machine in `core.node`, not here.
"""

"""Settings of the daemons: what may be set, where it comes from, how single values are written.

It starts nothing.
"""

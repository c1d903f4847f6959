"""The streams to the nodes.

Greeting, sessions, leases, and the guards against duplicate, stale and talkative nodes.
"""

"""One adapter per framework.

Only an adapter may import a framework, and only in the user's own process.
"""

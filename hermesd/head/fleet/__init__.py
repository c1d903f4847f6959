"""The streams to the nodes: greeting, sessions and leases.

It also guards against duplicate nodes, nodes with stale state, and nodes that send too much. The
services for clients (`api`) may not enter.
"""

"""Names, keys, certificates, tickets and accounts, shared by the head, nodes and clients.

The head and node daemons may not enter.
"""

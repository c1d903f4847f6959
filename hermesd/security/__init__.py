"""Who is known to a head and how: names, keys, certificates, tickets, accounts.

Shared by the head, nodes and clients.
"""

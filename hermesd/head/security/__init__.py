"""Who may call.

Certificates, tokens, the guard before every method, the addresses the head listens on.
"""

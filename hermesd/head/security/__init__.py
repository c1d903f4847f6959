"""Decides who may call the head.

Certificates, tokens, the guard before every method, and the addresses the head listens on. Neither
`api` nor `fleet`, which it guards, may enter.
"""

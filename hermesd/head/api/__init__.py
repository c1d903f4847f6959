"""The services that clients call: who may, what they see, what they change.

Decisions are the core's.
"""

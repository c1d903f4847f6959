"""Simulation in virtual time: policies compared on recorded curves, by the production scheduler.

The daemons, the wire format and gRPC may not enter.
"""

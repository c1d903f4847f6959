"""Simulation in virtual time: policies compared on recorded curves, and clusters with faults.

Both run the production scheduler; `cluster` also runs the production node machine. The daemons,
the wire format and gRPC may not enter.
"""

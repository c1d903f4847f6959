"""Hermes' daemons: the control daemon (head), the node daemon, and the simulator of both."""

__version__ = "0.1.0"

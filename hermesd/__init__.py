"""Hermes' daemons: the control daemon (head), the node daemon, and the simulator of both."""

"""The node daemon: devices, hosts and checkpoints of one machine. Never decides who runs."""

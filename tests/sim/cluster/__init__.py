"""A whole cluster in virtual time, with faults.

Simulated heads, nodes, hosts and disks surround the same core that production runs.
"""

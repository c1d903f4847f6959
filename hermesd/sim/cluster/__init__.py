"""A whole cluster in virtual time, with faults.

A head, nodes, hosts and disks around the very core that production runs.
"""

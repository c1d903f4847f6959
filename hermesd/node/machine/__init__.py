"""What the machine gives.

Devices, cgroups, processes, environments, the hours it may be used.
"""

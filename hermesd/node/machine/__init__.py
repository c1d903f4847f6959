"""What the machine provides: devices, cgroups, processes, environments, hours of availability.

Nothing here knows of hosts or of what is on disk: neither `runner` nor `storage` may enter.
"""

"""What the machine provides: devices, cgroups, processes, environments, hours of availability."""

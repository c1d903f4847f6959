"""Virtual time, recorded curves and faults, driving the very same core."""

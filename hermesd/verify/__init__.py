"""The resume certificate: one trial run with suspends and without, compared bit for bit."""

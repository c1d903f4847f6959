"""A head and several nodes, each in a network of its own, and every way to break them."""

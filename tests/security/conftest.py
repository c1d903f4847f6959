"""A node daemon and what stands for its head, as the tests of nodes have them."""

from tests.node.conftest import head, launch, no_survivors, running, suspended

__all__ = ["head", "launch", "no_survivors", "running", "suspended"]

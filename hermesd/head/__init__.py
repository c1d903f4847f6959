"""The control daemon: one loop that owns the scheduler, its journal and its gRPC services."""

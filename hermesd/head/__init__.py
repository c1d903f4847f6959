"""The control daemon: one loop that owns the scheduler, its journal and its gRPC services.

It decides nothing itself; the core does. Neither `node` nor `sim` may enter.
"""

"""The daemons of Hermes: the control daemon (head), the node daemon, and the simulator of both.

Neither `hermesctl`, nor `trainer_shim`, nor a training framework may be imported here.
"""

__version__ = "0.1.0"

"""The node daemon: the devices, hosts and checkpoints of one machine.

It never decides which trial runs. Neither `head` nor `sim` may enter.
"""

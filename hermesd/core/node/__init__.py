"""The node's state machine: orders and facts go in, actions and events come out.

Pure: the node daemon and the simulator carry out the actions.
"""

"""What a node does with its runs.

A pure state machine, orders and facts in, actions and events out.
"""

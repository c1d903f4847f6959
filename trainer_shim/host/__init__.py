"""The small process that owns one live trial: it starts, watches, suspends and ends the program.

It has one thread, and outlives the node daemon. No operation of a framework may run in it: it must
be able to fork the program again and again.
"""

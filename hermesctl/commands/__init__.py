"""The commands of `hermesctl`, one file per noun; `cli.py` assembles them.

They may use the rest of hermesctl; outside this room,
only `cli.py` imports them.
"""

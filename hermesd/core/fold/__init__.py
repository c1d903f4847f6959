"""Applies each kind of event and command to the tables of the state.

Pure: replaying the journal and running live use the same code.
"""

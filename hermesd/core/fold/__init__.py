"""What each kind of event and command does to the tables of the state.

Pure; replay and live run the same code.
"""

"""Virtual time: policies compared on recorded trainings, and whole clusters with faults.

Both drive the production scheduler; `cluster` also drives the production node machine.
"""

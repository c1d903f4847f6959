"""The subcommands of `hermesd` that do not run a daemon.

Each is imported only when it is called.
"""

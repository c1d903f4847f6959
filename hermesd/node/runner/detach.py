"""Starts a program that is nobody's child: `python detach.py PROGRAM ARGUMENT...` prints its pid.

An asyncio child is killed when its transport is collected, but hosts outlive their daemon. Run
as a file, so that it imports nothing; the program's output goes where our errors go.
"""

import os
import sys


def main() -> None:
    """Start the program in a session of its own and leave it to init."""
    errors_too = [(os.POSIX_SPAWN_DUP2, 2, 1)]
    command = sys.argv[1:]
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, file_actions=errors_too, setsid=True)
    except OSError as error:
        sys.exit(error.strerror)
    print(pid)


if __name__ == "__main__":
    main()

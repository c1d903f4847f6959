"""The command line, a file for each noun; cli.py puts them together."""

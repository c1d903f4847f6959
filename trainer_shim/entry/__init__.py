"""The folder that Hermes puts on PYTHONPATH. It may hold only sitecustomize.py."""

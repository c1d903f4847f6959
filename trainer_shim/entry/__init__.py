"""The folder that Hermes puts on PYTHONPATH; all that is in it is sitecustomize.py."""

"""The command line and the Python SDK: they speak to the head by protos only."""

"""The Python SDK: clients, records, and the one channel to a head. It knows no terminal."""

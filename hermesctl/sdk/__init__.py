"""The Python SDK: clients, records, and the connection to a head.

Nothing of the terminal may enter: no `render`, no `commands`.
"""

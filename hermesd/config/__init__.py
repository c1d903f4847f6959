"""Settings of the daemons: the schema, the sources, and how single values are written.

No daemon and no wire format may enter; nothing here starts anything.
"""

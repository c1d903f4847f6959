"""Records as text, tables and moving pictures. Pure but for the terminal's own two streams."""

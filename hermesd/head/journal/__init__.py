"""The journal and all that is read off it: store, points, replay, repair, backup.

Only `store` opens the database.
"""

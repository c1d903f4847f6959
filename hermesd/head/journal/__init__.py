"""The journal and everything that reads it: store, points, replay, repair, backup.

Only `store` may open the database.
"""

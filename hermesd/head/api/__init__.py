"""The services that clients call.

They check the caller's rights, show what that user may see, and submit changes as events.
Scheduling decisions belong in the core.
"""

"""The scheduling policies, one pure file each; none knows another."""

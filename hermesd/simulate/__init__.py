"""Policies compared on recorded trainings: the production scheduler in virtual time, many times."""

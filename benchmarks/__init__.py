"""Benchmarks: each module prints a table and JSON, says on what machine, and asserts no time."""

"""Runs one trial on this node: starts its host, sends it requests, listens to it, and cleans up."""

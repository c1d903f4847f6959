"""Elastic width: the cluster of the Optimus paper, one large decision, and a search."""

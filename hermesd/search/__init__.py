"""Searchers that propose trials while others train, in a process of their own beside the head.

The process keeps nothing: each `Ask` has the study and all that is known of its trials, and the
same one gets the same answer. So a head that is started again goes on where it was, and a
sampler that hangs, or takes the process with it, harms nothing but its own proposal.
"""

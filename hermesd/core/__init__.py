"""The pure core: what a trial may do, who runs next and where. No I/O, no clock, no randomness."""

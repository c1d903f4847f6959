"""The pure core: what a trial may do, who runs next, and where.

I/O, clocks, randomness, asyncio and the other rooms of hermesd may not enter: events, and the
time, are handed in; commands come out. The head, the simulator and the tests run this same code.
"""

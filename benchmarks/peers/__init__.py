"""Small studies under Hermes, under what others use, and in plain loops, on the same cores.

Each of the others is one thin script around the same programs, with that tool's defaults;
it writes down when which trial finished which epoch, and what is made of that is the same for all.
"""

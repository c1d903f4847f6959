"""What follows from the state: who runs next, where, and why. Pure; commands come out."""

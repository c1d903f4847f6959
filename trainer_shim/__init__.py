"""What Hermes puts into a training process, and the small process that owns it.

The package is imported by the user's own interpreter, so it uses the standard library alone
and Python 3.9 syntax; frameworks are imported only by their adapter, in the process that
trains. `attach` is the explicit interface for programs that Hermes has no adapter for:

    trial = trainer_shim.attach()
    for step in range(first_step, steps):
        ...
        trial.report(step + 1, loss=loss, save=save)

`log(val_acc=...)` tells a metric beside what the adapter of a framework reports, and
`on_change("dropout", set_dropout)` has the program set what changes while it trains.
"""

from __future__ import annotations

from trainer_shim.api import Resume, Trial, attach, log, on_change

__all__ = ["Resume", "Trial", "attach", "log", "on_change"]

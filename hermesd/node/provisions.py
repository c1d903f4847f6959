"""What a node's machine has besides devices."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hermesd.node.machine.accounts import Accounts
from hermesd.node.machine.cgroups import Cgroups
from hermesd.node.machine.cpu_quotas import CpuQuotas
from hermesd.node.machine.images import ProcessImages
from hermesd.node.storage.shared_directory import Shared


@dataclass(frozen=True, slots=True)
class Provisions:
    """Groups for the processes of trials, quotas for these, a directory in common with others."""

    cgroups: Cgroups
    quotas: CpuQuotas
    shared: Shared | None
    images: ProcessImages
    accounts: Accounts
    #: What is to be said of frameworks that the daemon's own Python has.
    frameworks: tuple[str, ...] = ()

    @property
    def facts(self) -> tuple[str, ...]:
        """For people."""
        shared = (self.shared.fact,) if self.shared else ()
        return (
            self.accounts.fact,
            self.cgroups.fact,
            *self.quotas.facts,
            self.images.fact,
            *shared,
            *self.frameworks,
        )

    def sweep(self, kept: Collection[str] = ()) -> None:
        """Take away what is left of groups of trials, but of those whose groups are `kept`."""
        self.cgroups.sweep(kept)
        self.quotas.sweep()

    @property
    def shared_name(self) -> str:
        """What tells the directory from others; empty without one."""
        return self.shared.name if self.shared else ""

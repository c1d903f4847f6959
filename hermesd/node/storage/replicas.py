"""Copies of checkpoints that the head wants in case a node is lost: those of other nodes here, and
this node's own in the directory that it shares.

One copy is made at a time, and a launch need not wait for it. Its result is reported to the head,
and costs no trial anything. Copies of trials that are not here, and that the head does not want,
are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from hermesd.core.bounds import directory_of
from hermesd.core.events import Copied, CopyEvent, Dropped, NotCopied, Spoilt
from hermesd.core.model import Checkpoint, CheckpointId, NodeId, TrialId
from hermesd.core.node.actions import Action, DeleteCheckpoints, DeleteTrialFiles, FetchCheckpoint
from hermesd.core.node.messages import Fetch
from hermesd.logs import get_logger
from hermesd.node.driver import MachineDriver
from hermesd.node.machine.accounts import Accounts, NoAccount
from hermesd.node.reasons import words_of
from hermesd.node.storage import checkpoints, client_files
from hermesd.node.storage.checkpoints import DamagedCheckpoint
from hermesd.node.storage.code import CodeError
from hermesd.node.storage.disk_budget import DiskBudget
from hermesd.node.storage.fetching import Fetching, NotFetched
from hermesd.node.storage.shared_directory import Shared, SharedAway
from hermesd.node.storage.trial_folder import BadTrial, TrialFolder

log = get_logger()


def _names(order: Fetch) -> list[str]:
    """What lies below a trial's folder of what is to be copied, and of what is to be kept."""
    return [each.rpartition("@")[2] for each in (order.checkpoint.id, *order.keep)]


def _verify(folder: TrialFolder, name: CheckpointId) -> None:
    """Raises DamagedCheckpoint, OSError."""
    checkpoints.verified(client_files.checkpoint(folder, name))


class Replicas:
    """The copies under way."""

    def __init__(
        self,
        node: NodeId,
        tasks: asyncio.TaskGroup,
        driver: MachineDriver,
        fetching: Fetching,
        disk: DiskBudget,
        shared: Shared | None,
        accounts: Accounts,
    ) -> None:
        self._node = node
        self._accounts = accounts
        self._tasks = tasks
        self._driver = driver
        self._fetching = fetching
        self._disk = disk
        self._shared = shared
        self._turn = asyncio.Semaphore(1)
        self._under_way: dict[TrialId, set[asyncio.Task[None]]] = {}

    def carry_out(self, action: Action) -> None:
        """Begin with an action of the machine, if it is about copies."""
        match action:
            case DeleteTrialFiles(trial):
                for task in self._under_way.get(trial, ()):
                    task.cancel()
            case FetchCheckpoint(order):
                self._begin(order.trial, self._copy(order))
            case DeleteCheckpoints(trial, identity):
                self._begin(trial, self._clear(trial, identity))
            case _:
                pass

    async def doubt(self, trial: TrialId, name: CheckpointId) -> None:
        """Another node did not get this checkpoint from here, or a run here could not go on from
        it: see whether it is still what it was, and tell the head if it is not."""
        try:
            folder = self._disk.folders.of(trial)
        except BadTrial:
            return
        async with self._fetching.lock(folder.checkpoints):
            try:
                await asyncio.to_thread(folder.as_owner, _verify, folder, name)
            except checkpoints.DamagedCheckpoint as error:
                reason = str(error)
            except FileNotFoundError as error:
                reason = words_of(error)
            except OSError as error:  # the disk's fault, and it may be over soon
                log.warning("checkpoint not read", checkpoint=name, error=words_of(error))
                return
            else:
                return
            instead = await asyncio.to_thread(folder.as_owner, self._without, folder, name)
        log.error("checkpoint set aside", checkpoint=name, reason=reason)
        event = Spoilt(self._node, trial, name, reason, instead)
        self._driver.outbox.tell(event, identity=folder.identity)

    def _without(self, folder: TrialFolder, name: CheckpointId) -> Checkpoint | None:
        """Set a checkpoint aside; the furthest of the trial that is left."""
        checkpoints.set_aside(folder.checkpoints / name.rpartition("@")[2])
        found = next(checkpoints.newest(folder.checkpoints), None)
        if found is None:
            return None
        there = f"{folder.trial}@{found.path.name}"
        return Checkpoint(
            there,
            folder.trial,
            found.attempt,
            found.step,
            found.sha256,
            found.size_bytes,
            (self._node,),
            self._node if found.is_image else "",
        )

    def _begin(self, trial: TrialId, deed: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(deed)
        under_way = self._under_way.setdefault(trial, set())
        under_way.add(task)

        def over(_: asyncio.Task[None]) -> None:
            under_way.discard(task)
            if not under_way:
                self._under_way.pop(trial, None)

        task.add_done_callback(over)

    async def _copy(self, order: Fetch) -> None:
        trial, name = order.trial, order.checkpoint.id
        event: CopyEvent = Copied(order.node, trial, name)
        try:
            async with self._turn:
                if order.into:
                    await self._fork(order)
                else:
                    await (self._bring(order) if order.sources else self._share(order))
        except NotFetched as error:
            event = NotCopied(order.node, trial, name, str(error), error.way)
        except DamagedCheckpoint as error:
            event = NotCopied(order.node, trial, name, str(error), way=False)
        except Exception as error:  # whatever another node sends costs no more than the copy
            foreseen = isinstance(error, BadTrial | CodeError | NoAccount | OSError)
            log.error("copy given up", checkpoint=name, exc_info=None if foreseen else error)
            event = NotCopied(order.node, trial, name, words_of(error), way=True)
        if isinstance(event, NotCopied):
            log.warning("not copied", checkpoint=name, reason=event.reason)
        self._driver.outbox.tell(event, identity=order.identity)

    async def _bring(self, order: Fetch) -> None:
        """Raises NotFetched, BadTrial, CodeError, OSError."""
        await self._disk.room(order.user)
        folder = self._disk.folders.of(order.checkpoint.trial)
        async with self._fetching.lock(folder.checkpoints):
            account = self._accounts.of(order.user)
            await asyncio.to_thread(folder.belong_to, order.identity, account)
            if not await self._fetching.fetch(
                order.checkpoint, order.sources, folder.checkpoints, order.identity
            ):
                raise NotFetched(f"{order.checkpoint.id}: nobody can be asked for it", way=True)
            await self._retain(folder, _names(order))

    async def _fork(self, order: Fetch) -> None:
        """Raises NotFetched, BadTrial, DamagedCheckpoint, OSError."""
        await self._disk.room(order.user)
        parent, child = map(self._disk.folders.of, (order.checkpoint.trial, order.into))
        name = directory_of(order.checkpoint.id)
        if name is None or parent.identity != (order.parent_identity or order.identity):
            raise NotFetched(f"{order.checkpoint.id} is not here", way=False)
        async with self._fetching.lock(child.checkpoints):
            account = self._accounts.of(order.user)
            await asyncio.to_thread(child.belong_to, order.identity, account)
            await asyncio.to_thread(child.begin_from, parent, name)

    async def _share(self, order: Fetch) -> None:
        """Raises NotFetched, BadTrial, DamagedCheckpoint, OSError."""
        folder, names = self._disk.folders.of(order.checkpoint.trial), _names(order)
        if self._shared is None or not order.identity or folder.identity != order.identity:
            raise NotFetched(f"{order.checkpoint.id} is not to be shared by this node", way=True)
        trial, path = folder.trial, folder.checkpoints / names[0]
        if directory_of(order.checkpoint.id) is None or not folder.as_owner(path.is_dir):
            raise NotFetched(f"{path} is here no more", way=False)
        folder.as_owner(checkpoints.lend, path)
        try:
            await asyncio.to_thread(self._shared.put, path, trial, order.identity, names)
        except SharedAway as error:
            raise NotFetched(str(error), way=True) from None

    async def _clear(self, trial: TrialId, identity: str) -> None:
        try:
            folder = self._disk.folders.of(trial)
        except BadTrial:
            return
        async with self._fetching.lock(folder.checkpoints):
            try:
                if folder.identity == identity:
                    await self._retain(folder, ())
            except OSError as error:  # a program may have closed its folder
                log.warning("checkpoints stay", trial=trial, reason=words_of(error))
                return
        if self._driver.machine.forgot(trial):
            self._driver.outbox.tell(Dropped(self._node, trial), identity=identity)

    async def _retain(self, folder: TrialFolder, names: Sequence[str]) -> None:
        """Remove what nothing refers to, unless a run came meanwhile, which would know better."""
        if self._driver.machine.forgot(folder.trial):
            await asyncio.to_thread(folder.as_owner, checkpoints.retain, folder.checkpoints, names)

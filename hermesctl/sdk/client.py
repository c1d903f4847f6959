"""The SDK for scripts and notebooks: the same calls as AsyncClient, blocking.

Rule: its calls run on an event loop in another thread, so it works inside a running loop as well;
nothing is decided here.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from hermesctl.sdk.async_client import AsyncClient, StudySource
from hermesctl.sdk.connection import PATIENCE_SECONDS
from hermesctl.sdk.events import Event
from hermesctl.sdk.follow import RECONNECT_SECONDS, OnGap
from hermesctl.sdk.forecast import Preview
from hermesctl.sdk.loop_thread import LoopThread
from hermesctl.sdk.records import (
    Curve,
    Explanation,
    Invited,
    Leaderboard,
    Member,
    MetricChoice,
    Node,
    ServerInfo,
    Stopped,
    Study,
    StudyDetail,
    Submission,
    Trial,
    TrialDetail,
    User,
)
from hermesctl.sdk.requests import Changes, StudyRef, Target, TrialRef
from hermesctl.sdk.transfer import OnProgress
from hermesctl.study_file.submission import Prepared

Answer = TypeVar("Answer")


class Client:
    """A blocking client of one head; use it as a context manager or call `close`.

    `head`, `local` and `patience_seconds` are AsyncClient's; with `local` the embedded head is
    started here if it does not run.
    """

    def __init__(
        self,
        head: str | None = None,
        *,
        local: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._client = AsyncClient(head, local=local, patience_seconds=patience_seconds)
        self._thread = LoopThread(self._client.close)
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every call and stream and close the connection; closing twice is fine, and so is
        leaving it to the end of the script."""
        self._thread.close()

    def server_info(self) -> ServerInfo:
        """See AsyncClient.server_info."""
        return self._run(self._client.server_info())

    def studies(self) -> Iterator[Study]:
        """See AsyncClient.studies."""
        return self._iterate(self._client.studies)

    def latest_study(self) -> Study | None:
        """See AsyncClient.latest_study."""
        return self._run(self._client.latest_study())

    def study(self, study: StudyRef) -> StudyDetail:
        """See AsyncClient.study."""
        return self._run(self._client.study(study))

    def trials(self, study: StudyRef) -> Iterator[Trial]:
        """See AsyncClient.trials."""
        return self._iterate(lambda: self._client.trials(study))

    def trial(self, trial: TrialRef) -> TrialDetail:
        """See AsyncClient.trial."""
        return self._run(self._client.trial(trial))

    def best(
        self, study: StudyRef, count: int = 10, *, metric: str = "", goal: str = "", by: str = ""
    ) -> Leaderboard:
        """See AsyncClient.best."""
        return self._run(self._client.best(study, count, metric=metric, goal=goal, by=by))

    def curve(self, trial: TrialRef, metric: str = "", max_points: int = 0) -> Curve:
        """See AsyncClient.curve."""
        return self._run(self._client.curve(trial, metric, max_points))

    def why(self, trial: TrialRef) -> Explanation:
        """See AsyncClient.why."""
        return self._run(self._client.why(trial))

    def nodes(self) -> list[Node]:
        """See AsyncClient.nodes."""
        return self._run(self._client.nodes())

    def events(
        self,
        study: StudyRef | None = None,
        *,
        after: int = 0,
        reports: bool = False,
        once: bool = False,
        reconnect_seconds: float = RECONNECT_SECONDS,
        on_gap: OnGap | None = None,
    ) -> Iterator[Event]:
        """See AsyncClient.events; `on_gap` is called in the client's thread."""
        return self._iterate(
            lambda: self._client.events(
                study,
                after=after,
                reports=reports,
                once=once,
                reconnect_seconds=reconnect_seconds,
                on_gap=on_gap,
            )
        )

    def follow(
        self,
        study: StudyRef,
        *,
        after: int = 0,
        reports: bool = True,
        reconnect_seconds: float = RECONNECT_SECONDS,
        on_gap: OnGap | None = None,
    ) -> Iterator[Event]:
        """See AsyncClient.follow; `on_gap` is called in the client's thread."""
        return self._iterate(
            lambda: self._client.follow(
                study,
                after=after,
                reports=reports,
                reconnect_seconds=reconnect_seconds,
                on_gap=on_gap,
            )
        )

    def wait(self, study: StudyRef) -> StudyDetail:
        """See AsyncClient.wait."""
        return self._run(self._client.wait(study))

    def logs(self, trial: TrialRef, *, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """See AsyncClient.logs."""
        return self._iterate(lambda: self._client.logs(trial, offset=offset, follow=follow))

    def export(self, study: StudyRef) -> Iterator[bytes]:
        """See AsyncClient.export."""
        return self._iterate(lambda: self._client.export(study))

    def download_checkpoint(
        self,
        trial: TrialRef,
        destination: str | os.PathLike[str],
        checkpoint: str = "",
        *,
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Path]:
        """See AsyncClient.download_checkpoint; `on_progress` is called in the client's thread."""
        return self._run(
            self._client.download_checkpoint(
                trial, destination, checkpoint, force=force, on_progress=on_progress
            )
        )

    def submit(
        self,
        study: StudySource,
        *,
        directory: str | os.PathLike[str] | None = None,
        again: bool = False,
        dry_run: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """See AsyncClient.submit."""
        return self._run(
            self._client.submit(
                study,
                directory=directory,
                again=again,
                dry_run=dry_run,
                environment=environment,
            )
        )

    def preview(
        self,
        study: StudySource,
        *,
        directory: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Preview:
        """See AsyncClient.preview."""
        return self._run(self._client.preview(study, directory=directory, environment=environment))

    def clone(
        self,
        study: StudyRef,
        changes: Mapping[str, object] | Prepared | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """See AsyncClient.clone."""
        return self._run(self._client.clone(study, changes, environment))

    def replay(
        self, study: StudyRef, policies: str = "asha", devices: int | None = None
    ) -> dict[str, Any]:
        """See AsyncClient.replay."""
        return self._run(self._client.replay(study, policies, devices))

    def pause(self, *targets: Target) -> list[str]:
        """See AsyncClient.pause."""
        return self._run(self._client.pause(*targets))

    def resume(self, *targets: Target) -> list[str]:
        """See AsyncClient.resume."""
        return self._run(self._client.resume(*targets))

    def stop(self, *targets: Target) -> Stopped:
        """See AsyncClient.stop."""
        return self._run(self._client.stop(*targets))

    def retry(self, *targets: Target) -> list[str]:
        """See AsyncClient.retry."""
        return self._run(self._client.retry(*targets))

    def extend(
        self,
        *targets: Target | Mapping[str, object],
        stop: Changes | None = None,
        parameters: Changes | None = None,
    ) -> list[str]:
        """Let trials go on for longer; returns the ids of those that will.

        `extend("digits", {"epochs": 20})` and `extend("digits", parameters={"epochs": 20})` are
        the same: new values of hyper-parameters. `stop={"max_steps": 1000}` raises stop rules, by
        the keys of the study file. Targets are studies, trials or their ids; finished trials go
        on from their last checkpoint.

        Raises UsageError for what can't be meant, StudyFileError for values that won't do,
        NotFound, and Refused where a trial can't be extended.
        """
        return self._run(self._client.extend(*targets, stop=stop, parameters=parameters))

    def set_metric(
        self, study: StudyRef, metric: str, *, goal: str = "", by: str = ""
    ) -> MetricChoice:
        """See AsyncClient.set_metric."""
        return self._run(self._client.set_metric(study, metric, goal=goal, by=by))

    def remove(self, study: StudyRef) -> None:
        """See AsyncClient.remove."""
        self._run(self._client.remove(study))

    def users(self) -> list[User]:
        """See AsyncClient.users."""
        return self._run(self._client.users())

    def members(self) -> list[Member]:
        """See AsyncClient.members."""
        return self._run(self._client.members())

    def invite(self, name: str, role: str = "user", days: float = 1.0) -> Invited:
        """See AsyncClient.invite."""
        return self._run(self._client.invite(name, role, days))

    def revoke(self, name: str, role: str | None = None) -> None:
        """See AsyncClient.revoke."""
        self._run(self._client.revoke(name, role))

    def drain(self, node: str) -> Node:
        """See AsyncClient.drain."""
        return self._run(self._client.drain(node))

    def undrain(self, node: str) -> Node:
        """See AsyncClient.undrain."""
        return self._run(self._client.undrain(node))

    def lose(self, node: str, for_good: bool = False) -> Node:
        """See AsyncClient.lose."""
        return self._run(self._client.lose(node, for_good))

    def release(self, place: str) -> Node:
        """See AsyncClient.release."""
        return self._run(self._client.release(place))

    def wait_drained(self, node: str) -> Node:
        """See AsyncClient.wait_drained."""
        return self._run(self._client.wait_drained(node))

    def _run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._thread.run(coroutine)

    def _iterate(self, start: Callable[[], AsyncGenerator[Answer, None]]) -> Iterator[Answer]:
        return self._thread.iterate(start)


def _say_all() -> None:
    """Have `help` of each method say what is said of AsyncClient's."""
    for name, method in vars(Client).items():
        here = f"See AsyncClient.{name}"
        if (words := method.__doc__) and words.startswith(here):
            whole = inspect.getdoc(getattr(AsyncClient, name)) or words
            rest = words.removeprefix(here).strip(" ;.\n")
            method.__doc__ = f"{whole}\n\n{rest}." if rest else whole


_say_all()

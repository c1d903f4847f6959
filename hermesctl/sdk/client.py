"""The SDK for scripts and notebooks: the same calls as AsyncClient, blocking.

Made by generate.py of async_client.py; do not edit. Its calls run on an event loop in another
thread, so it works inside a running loop as well; nothing is decided here.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from hermesctl.sdk.async_client import AsyncClient, StudySource
from hermesctl.sdk.comparison import StudyComparison
from hermesctl.sdk.connection import PATIENCE_SECONDS
from hermesctl.sdk.events import Event
from hermesctl.sdk.follow import RECONNECT_SECONDS, OnGap
from hermesctl.sdk.forecast import Preview
from hermesctl.sdk.loop_thread import LoopThread
from hermesctl.sdk.records import (
    ChangedTrials,
    Curve,
    Explanation,
    Invited,
    Leaderboard,
    Member,
    MetricChoice,
    Node,
    ServerInfo,
    Study,
    StudyDetail,
    Submission,
    Trial,
    TrialDetail,
    TrialFile,
    User,
)
from hermesctl.sdk.requests import Changes, StudyRef, Target, TrialRef
from hermesctl.sdk.transfer import OnProgress
from hermesctl.study_file.submission import Prepared

Answer = TypeVar("Answer")


class Client:
    """A blocking client of one head; use it as a context manager or call `close`.

    `head`, `local` and `patience_seconds` are AsyncClient's; with `local` the embedded head is
    started here if it does not run. Functions that are passed, such as `on_gap` and `on_progress`,
    are called in the client's thread.
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

    def _run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._thread.run(coroutine)

    def _iterate(self, start: Callable[[], AsyncGenerator[Answer, None]]) -> Iterator[Answer]:
        return self._thread.iterate(start)

    def server_info(self) -> ServerInfo:
        """The head's version and abilities."""
        return self._run(self._client.server_info())

    def studies(self) -> Iterator[Study]:
        """All studies that may be seen, in the head's order."""
        return self._iterate(lambda: self._client.studies())

    def latest_study(self) -> Study | None:
        """The study that was submitted last, if there is any."""
        return self._run(self._client.latest_study())

    def study(self, study: StudyRef) -> StudyDetail:
        """A study, by its id or a unique prefix of it, with its trials."""
        return self._run(self._client.study(study))

    def trials(self, study: StudyRef) -> Iterator[Trial]:
        """A study's trials by number."""
        return self._iterate(lambda: self._client.trials(study))

    def trial(self, trial: TrialRef) -> TrialDetail:
        """One trial (`digits/17`), with the end of its output."""
        return self._run(self._client.trial(trial))

    def best(
        self, study: StudyRef, count: int = 10, *, metric: str = "", goal: str = "", by: str = ""
    ) -> Leaderboard:
        """The leaderboard: at most `count` trials, best first; those without a metric last.

        With a `metric`, `goal` or `by` they are ranked by these this once, as of `set_metric`.
        """
        return self._run(self._client.best(study, count, metric=metric, goal=goal, by=by))

    def curve(self, trial: TrialRef, metric: str = "", max_points: int = 0) -> Curve:
        """A metric of a trial by step; the signal if none is named, all points if no maximum.

        Raises NotFound for a metric that is none of those that the trial has reported.
        """
        return self._run(self._client.curve(trial, metric, max_points))

    def why(self, trial: TrialRef) -> Explanation:
        """Why a trial runs or waits, in the policy's own words."""
        return self._run(self._client.why(trial))

    def nodes(self) -> list[Node]:
        """The nodes with their devices."""
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
        """The journal's events after a sequence number: of one study or all, without end unless
        `once`. It reconnects by itself; `on_gap` is told of each break.
        """
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
        """A study's events until it has finished. It reconnects by itself."""
        return self._iterate(
            lambda: self._client.follow(
                study,
                after=after,
                reports=reports,
                reconnect_seconds=reconnect_seconds,
                on_gap=on_gap,
            )
        )

    def wait(self, study: StudyRef, *, progress: bool = False) -> StudyDetail:
        """Return once the study has finished; with `progress` a bar shows how far it is."""
        return self._run(self._client.wait(study, progress=progress))

    def logs(
        self, trial: TrialRef, *, offset: int = 0, follow: bool = False, on_gap: OnGap | None = None
    ) -> Iterator[bytes]:
        """What a trial printed, from a byte on (negative: from the end), and, with `follow`,
        what it prints until it ends.
        """
        return self._iterate(
            lambda: self._client.logs(trial, offset=offset, follow=follow, on_gap=on_gap)
        )

    def export(self, study: StudyRef) -> Iterator[bytes]:
        """The study as JSON Lines: itself, its trials, its journal and its points."""
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
        """Write a trial's newest (or the named) checkpoint as a new directory; returns its
        files, which load without Hermes.

        With `force` the directory may hold files, of which those of the same names are replaced.
        `on_progress` is told how many bytes have come.
        """
        return self._run(
            self._client.download_checkpoint(
                trial, destination, checkpoint, force=force, on_progress=on_progress
            )
        )

    def files(self, trial: TrialRef, *patterns: str) -> list[TrialFile]:
        """The files of a trial's working copy, on the node where it ran last: all of them, or those
        that are one of the paths, lie in one of the folders or fit one of the patterns given, in
        which `*` stands for anything. Raises NotFound where there is none.
        """
        return self._run(self._client.files(trial, *patterns))

    def download_files(
        self,
        trial: TrialRef,
        destination: str | os.PathLike[str],
        *patterns: str,
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Path]:
        """Write the files that `files` lists as a new directory; returns them, each as it was when
        it was begun to be read. `force` and `on_progress` as of `download_checkpoint`.
        """
        return self._run(
            self._client.download_files(
                trial, destination, *patterns, force=force, on_progress=on_progress
            )
        )

    def read_file(self, trial: TrialRef, path: str) -> Iterator[bytes]:
        """What a file of a trial's working copy holds, piece by piece. Raises NotFound where there
        is none, UsageError where there are several.
        """
        return self._iterate(lambda: self._client.read_file(trial, path))

    def submit(
        self,
        study: StudySource,
        *,
        directory: str | os.PathLike[str] | None = None,
        again: bool = False,
        dry_run: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """Submit a study: a file's path, or a dict with a study file's keys and the `directory`
        of its program (default: the present one).

        An identical study that is there already is answered with instead of being run twice,
        unless `again`. With `dry_run` the study is only checked and expanded; where no head
        answers, this machine does that, and a note says that nodes and pools were not looked at.
        `environment` is for the trials, beside what programs usually depend on, and a part of the
        study: with another value it is not identical.
        Raises StudyFileError for what is no study, whether that is found here or by the head,
        and Refused for what the head won't have now.
        """
        return self._run(
            self._client.submit(
                study, directory=directory, again=again, dry_run=dry_run, environment=environment
            )
        )

    def preview(
        self,
        study: StudySource,
        *,
        directory: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Preview:
        """What a study would be, and when it can be expected to have something; nothing is stored.

        `study`, `directory` and `environment` are those of `submit`, and so is what is raised, but
        that a head need not answer: then this machine checks and expands it, as its notes say, and
        nothing is known of when.
        """
        return self._run(self._client.preview(study, directory=directory, environment=environment))

    def clone(
        self,
        study: StudyRef,
        changes: Mapping[str, object] | Prepared | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """Submit a study once more, over the very same code and with its variables.

        `changes` are new values by the keys of the study file, with dots for what lies deeper:
        `{"name": "again", "schedule.policy": "asha", "parameters.lr.values": [0.1, 0.2]}`.
        `environment` is over the study's own variables. Raises as `submit` does, and NotFound.
        """
        return self._run(self._client.clone(study, changes, environment))

    def replay(
        self, study: StudyRef, policies: str = "asha", devices: int | None = None
    ) -> dict[str, Any]:
        """What other policies would have made of a study, in virtual time over its own curves.

        `policies` are names with commas between, each with its settings after a colon as in
        `asha:eta=2`; `devices` are as many as it ran on by default. The answer has the keys of
        `hermesctl study replay -o json`. Raises UsageError for what cannot be replayed, and
        NotFound.
        """
        return self._run(self._client.replay(study, policies, devices))

    def compare(
        self, *studies: StudyRef, metric: str = "", goal: str = "", by: str = ""
    ) -> StudyComparison:
        """Two or more studies side by side: what each came to, its best trial's curve at the same
        steps and its best value at the same times, and in what their files differ.

        They are ranked by the metric of the first, or by `metric`, `goal` and `by` as of `best`.
        Raises UsageError for fewer than two or a metric that one has not reported, NotFound.
        """
        return self._run(self._client.compare(*studies, metric=metric, goal=goal, by=by))

    def pause(self, *targets: Target) -> list[str]:
        """Suspend trials, or all of a study's, until they are resumed; returns those that were
        neither paused nor over.
        """
        return self._run(self._client.pause(*targets))

    def resume(self, *targets: Target) -> list[str]:
        """Let paused trials compete for devices again; returns those that were paused."""
        return self._run(self._client.resume(*targets))

    def stop(self, *targets: Target) -> ChangedTrials:
        """End trials, their results stay; returns those that were not over, and in its `notes` what
        was lost with them. Works with a head of any version.
        """
        return self._run(self._client.stop(*targets))

    def retry(self, *targets: Target) -> list[str]:
        """Run failed, stopped or cancelled trials again, from their last checkpoint."""
        return self._run(self._client.retry(*targets))

    def tag(
        self, *targets: Target, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> list[str]:
        """Give trials tags, or all of a study's, and take others from them; returns the trials.

        A tag is a word without spaces, commas and slashes. Raises UsageError for one that won't
        do, NotFound.
        """
        return self._run(self._client.tag(*targets, add=add, remove=remove))

    def note(self, *targets: Target, text: str) -> list[str]:
        """Write a note to trials, over the one that they have; an empty text takes it away."""
        return self._run(self._client.note(*targets, text=text))

    def extend(
        self,
        *targets: Target | Mapping[str, object],
        stop: Changes | None = None,
        parameters: Changes | None = None,
        new: Changes | None = None,
        run_cap: int | None = None,
        axes: Changes | None = None,
    ) -> ChangedTrials:
        """Let trials go on for longer, or change what a study is to do; returns those changed.

        `targets` are studies, trials or their ids. `stop` sets stop rules, by the keys of the
        study file ({"max_steps": 1000}); `parameters` gives hyper-parameters new values
        ({"epochs": 20}), and may stand right after the targets instead; `new` gives the program
        arguments that the study has no parameter for. Finished trials go on from their last
        checkpoint; one whose program has ended by itself needs a length that rises.

        A study that runs goes by new stop rules at once. `run_cap` is how many trials it is to
        have, `axes` sets bounds of a random search ({"lr": {"max": 0.01}}): trials that have not
        begun are drawn again, or ended if they are too many. The `notes` of the answer say what
        became of them. Raises UsageError for what can't be meant, StudyFileError for values that
        won't do, NotFound, and Refused where a trial can't be extended.
        """
        return self._run(
            self._client.extend(
                *targets, stop=stop, parameters=parameters, new=new, run_cap=run_cap, axes=axes
            )
        )

    def add(
        self,
        study: StudyRef,
        parameters: Changes | None = None,
        *,
        new: Changes | None = None,
        count: int | None = None,
    ) -> Submission:
        """Give a study further trials, also one that has finished; the answer has them alone.

        `parameters` are values or axes in the place of the study's of those names, as in a study
        file: {"lr": 3e-4}, {"lr": [1e-4, 3e-4]}, {"lr": {"min": 0.1, "max": 0.5}}; all others are
        the study's own. `new` are arguments of the program that the study has no parameter for. A
        grid gives the points that no trial has, at most `count`; of a random search `count` more
        are drawn. Raises UsageError and StudyFileError for what won't do, NotFound, and Refused
        where the quota does not allow them.
        """
        return self._run(self._client.add(study, parameters, new=new, count=count))

    def set_metric(
        self, study: StudyRef, metric: str, *, goal: str = "", by: str = ""
    ) -> MetricChoice:
        """Have a study's leaderboard rank by another metric that its trials have reported.

        `goal` is `minimize` or `maximize`; without one the goal that the study gives that metric,
        else `minimize`. `by` is which value counts, `last` or `best`, or of the study's signal
        `smoothed`, the mean of its last tenth; without one `smoothed` for the signal, else `last`.
        What policies read is not changed; the answer's notes say so where it matters.

        Raises UsageError for a metric that nobody reported, Refused while nobody reported any.
        """
        return self._run(self._client.set_metric(study, metric, goal=goal, by=by))

    def set_signal(self, study: StudyRef, metric: str, *, goal: str = "") -> str:
        """Have policies read another metric that a study's trials have reported; returns the goal,
        `minimize` or `maximize`, which is found as in `set_metric` if none is given.

        The trials' curves so far are read anew. Raises UsageError for a metric that nobody
        reported, Refused while nobody reported any or for a study with a `stop.target`.
        """
        return self._run(self._client.set_signal(study, metric, goal=goal))

    def remove(self, study: StudyRef) -> None:
        """Forget a study with all that it left on disks."""
        return self._run(self._client.remove(study))

    def users(self) -> list[User]:
        """What each user has, has used lately and may have; to a user themselves alone."""
        return self._run(self._client.users())

    def members(self) -> list[Member]:
        """The nodes and people with a certificate, by name; to a user themselves alone."""
        return self._run(self._client.members())

    def invite(self, name: str, role: str = "user", days: float = 1.0) -> Invited:
        """A token, good once and for so many days, by which a person may log in: a `user`, an
        `operator` or an `admin`. Raises UsageError, and Refused by a head without certificates.
        """
        return self._run(self._client.invite(name, role, days))

    def revoke(self, name: str, role: str | None = None) -> None:
        """End a person's access at once, in one role or in all. Raises NotFound where they have
        none.
        """
        return self._run(self._client.revoke(name, role))

    def drain(self, node: str) -> Node:
        """Give a node nothing new and have it give up what it has; the node, as it is now.

        Each run goes on to the end of its quantum and is then written down, and what is parked is
        written down at once. Again for a draining node: it tries again what it could not write.
        """
        return self._run(self._client.drain(node))

    def undrain(self, node: str) -> Node:
        """Put a draining node to use again. Raises Refused for one that is not draining."""
        return self._run(self._client.undrain(node))

    def lose(self, node: str, for_good: bool = False) -> Node:
        """Have a silent node's trials go on elsewhere now, instead of when its lease is out.

        Only for a machine that is off: what runs there still would run a second time elsewhere
        until its own lease ends it. With `for_good` it is not expected back: its files count as
        gone, and it is listed no more. Raises NotFound, and Refused for a node that is connected.
        """
        return self._run(self._client.lose(node, for_good))

    def release(self, place: str) -> Node:
        """Take a node (with all its devices) or a device (`gpu2/cpu0`) out of quarantine.

        What failed there is forgotten. Raises NotFound, and Refused if nothing is held against it.
        """
        return self._run(self._client.release(place))

    def wait_drained(self, node: str) -> Node:
        """Return once nothing runs or is parked on a draining node, or it is to be used again.

        `node` is its whole name. Raises NotFound if there is none.
        """
        return self._run(self._client.wait_drained(node))

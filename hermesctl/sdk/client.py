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
    Fork,
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client.connection.address}>"

    def _run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._thread.run(coroutine)

    def _iterate(self, start: Callable[[], AsyncGenerator[Answer, None]]) -> Iterator[Answer]:
        return self._thread.iterate(start)

    def server_info(self) -> ServerInfo:
        """The head's version and abilities."""
        return self._run(self._client.server_info())

    def studies(self) -> Iterator[Study]:
        """All studies that the caller may see, in the head's order, the newest first."""
        return self._iterate(lambda: self._client.studies())

    def latest_study(self) -> Study | None:
        """The study that was submitted last; None if there is none."""
        return self._run(self._client.latest_study())

    def study(self, study: StudyRef) -> StudyDetail:
        """A study with its trials.

        Args:
            study: its id, a unique prefix of that, or a record of it.

        Raises:
            NotFound: no study has this id, or several begin with it.
        """
        return self._run(self._client.study(study))

    def trials(self, study: StudyRef) -> Iterator[Trial]:
        """A study's trials by number.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
        """
        return self._iterate(lambda: self._client.trials(study))

    def trial(self, trial: TrialRef) -> TrialDetail:
        """One trial with the end of its output.

        Args:
            trial: its id (`digits/17`) or a record of it.

        Raises:
            NotFound: there is no such trial.
        """
        return self._run(self._client.trial(trial))

    def best(
        self, study: StudyRef, count: int = 10, *, metric: str = "", goal: str = "", by: str = ""
    ) -> Leaderboard:
        """The leaderboard: best first, trials without a metric last.

        Args:
            study: as in `study`.
            count: how many trials at most.
            metric: rank by this metric, only now; the study's own if empty.
            goal: `minimize` or `maximize`; found as in `set_metric` if empty.
            by: which value counts, as in `set_metric`.

        Raises:
            NotFound: there is no such study.
            UsageError: no trial has reported this metric.
        """
        return self._run(self._client.best(study, count, metric=metric, goal=goal, by=by))

    def curve(self, trial: TrialRef, metric: str = "", max_points: int = 0) -> Curve:
        """A metric of a trial by step.

        Args:
            trial: as in `trial`.
            metric: its name; empty for the study's signal.
            max_points: thin it out evenly to this many points; 0 for all.

        Raises:
            NotFound: there is no such trial, or it has not reported this metric.
        """
        return self._run(self._client.curve(trial, metric, max_points))

    def why(self, trial: TrialRef) -> Explanation:
        """Why a trial runs or waits, in the policy's own words.

        Args:
            trial: as in `trial`.

        Raises:
            NotFound: there is no such trial.
        """
        return self._run(self._client.why(trial))

    def why_study(self, study: StudyRef) -> Explanation:
        """Why a study's trials run or wait: who is on a device, who is next, and why that one.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
        """
        return self._run(self._client.why_study(study))

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
        """The journal's events, of one study or of all. Reconnects by itself.

        Args:
            study: as in `study`; None for all.
            after: only events after this sequence number.
            reports: include each report of a loss.
            once: end with the newest event; otherwise it never ends.
            reconnect_seconds: how long to wait before each attempt to reconnect.
            on_gap: called with the reason when the connection breaks.

        Raises:
            NotFound: there is no such study.
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
        """A study's events until it has finished. Reconnects by itself.

        Args:
            study, after, reports, reconnect_seconds, on_gap: as in `events`.

        Raises:
            NotFound: there is no such study.
        """
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
        """Return once the study has finished.

        Args:
            study: as in `study`.
            progress: show a bar meanwhile, on stderr or in the notebook, and what its author should
                know, such as that its trials cannot run.

        Raises:
            NotFound: there is no such study.
        """
        return self._run(self._client.wait(study, progress=progress))

    def logs(
        self,
        trial: TrialRef,
        *,
        offset: int = 0,
        lines: int | None = None,
        follow: bool = False,
        rank: int = 0,
        on_gap: OnGap | None = None,
    ) -> Iterator[bytes]:
        """What a trial's program printed.

        Args:
            trial: as in `trial`.
            offset: the byte to start from; if negative, this many bytes before the end.
            lines: start with this many last lines instead, within the last 16 MiB.
            follow: go on with what it prints until it ends.
            rank: of which of its processes, if it has one for each device.
            on_gap: called with the reason when the connection breaks.

        Raises:
            NotFound: there is no such trial.
            UsageError: no process of the trial can have that rank.
        """
        return self._iterate(
            lambda: self._client.logs(
                trial, offset=offset, lines=lines, follow=follow, rank=rank, on_gap=on_gap
            )
        )

    def export(self, study: StudyRef) -> Iterator[bytes]:
        """A study as JSON Lines: itself, its trials, its journal and its points.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
        """
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
        """Write a trial's checkpoint as a new directory.

        Args:
            trial: as in `trial`.
            destination: the directory; new or empty.
            checkpoint: its id; empty for the newest.
            force: the directory may hold files, of which those of the same names are replaced.
            on_progress: called with the number of bytes received so far.

        Returns:
            The files, of which those for other programs load without Hermes.

        Raises:
            NotFound: there is no such trial, or it has no such checkpoint.
            UsageError: the directory can't be written to.
        """
        return self._run(
            self._client.download_checkpoint(
                trial, destination, checkpoint, force=force, on_progress=on_progress
            )
        )

    def files(self, trial: TrialRef, *patterns: str, written_only: bool = False) -> list[TrialFile]:
        """The files of a trial's working copy, on the node where it ran last.

        Args:
            trial: as in `trial`.
            patterns: only those that have one of these paths, lie in one of these folders, or fit
                one of these patterns, in which `*` stands for anything; all if there are none.
            written_only: without files that came with the program and have not changed.

        Raises:
            NotFound: there is no such trial, or no such file.
        """
        return self._run(self._client.files(trial, *patterns, written_only=written_only))

    def download_files(
        self,
        trial: TrialRef,
        destination: str | os.PathLike[str],
        *patterns: str,
        written_only: bool = False,
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[Path]:
        """Write the files that `files` lists as a new directory.

        Args:
            trial, patterns, written_only: as in `files`.
            destination, force, on_progress: as in `download_checkpoint`.

        Returns:
            The files, each as it was when it began to be read.

        Raises:
            NotFound: there is no such trial, or no such file.
            UsageError: the directory can't be written to.
        """
        return self._run(
            self._client.download_files(
                trial,
                destination,
                *patterns,
                written_only=written_only,
                force=force,
                on_progress=on_progress,
            )
        )

    def read_file(self, trial: TrialRef, path: str) -> Iterator[bytes]:
        """The content of a file of a trial's working copy, piece by piece.

        Args:
            trial: as in `trial`.
            path: its path in the working copy.

        Raises:
            NotFound: there is no such trial or file.
            UsageError: several files have this path as a pattern.
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
        """Submit a study.

        A study that is identical to an earlier one is not run twice: the answer names the earlier
        one.

        Args:
            study: the path of a study file or of a script, or a mapping with a study file's keys.
            directory: for a mapping, the folder of its program; the current one if None.
            again: run it although an identical study exists.
            dry_run: only check and expand it. If no head answers, this machine does that, and a
                note says that nodes and pools were not looked at.
            environment: variables for the trials, over those that they inherit. They are a part of
                the study: with other values it is not identical.

        Raises:
            StudyFileError: it is not a valid study, as this machine or the head found.
            SnapshotError: the program's folder can't be sent.
            Refused: the head does not accept it now.
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
        """What a study would be, and when to expect results. Nothing is stored.

        If no head answers, this machine checks and expands it; then there is no forecast.

        Args:
            study, directory, environment: as in `submit`.

        Raises:
            StudyFileError: it is not a valid study.
            SnapshotError: the program's folder can't be sent.
        """
        return self._run(self._client.preview(study, directory=directory, environment=environment))

    def clone(
        self,
        study: StudyRef,
        changes: Mapping[str, object] | Prepared | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Submission:
        """Submit a study once more, with its own code and variables.

        Args:
            study: as in `study`.
            changes: new values by the keys of the study file, with dots for what lies deeper:
                `{"schedule.policy": "asha", "parameters.lr.values": [0.1, 0.2]}`.
            environment: variables over the study's own.

        Raises:
            NotFound: there is no such study.
            StudyFileError: a value is not valid.
            Refused: the head does not accept it now.
        """
        return self._run(self._client.clone(study, changes, environment))

    def replay(
        self, study: StudyRef, policies: str = "asha", devices: int | None = None
    ) -> dict[str, Any]:
        """How other policies would have run a study, in virtual time over its own curves.

        Args:
            study: as in `study`.
            policies: names with commas between them, each with its settings after a colon:
                `asha:eta=2,fifo`.
            devices: how many there are; as many as it ran on if None.

        Returns:
            What `hermesctl study replay -o json` prints.

        Raises:
            NotFound: there is no such study.
            UsageError: it can't be replayed, or there is no such policy.
        """
        return self._run(self._client.replay(study, policies, devices))

    def compare(
        self, *studies: StudyRef, metric: str = "", goal: str = "", by: str = ""
    ) -> StudyComparison:
        """Studies side by side: their results, how soon these came, and how their files differ.

        Args:
            studies: two or more, as in `study`.
            metric, goal, by: rank by these, as in `best`; by the first study's own if empty, and by
                the last value where the metric is not the signal of all of them.

        Raises:
            NotFound: there is no such study.
            UsageError: fewer than two studies, or one has not reported the metric.
        """
        return self._run(self._client.compare(*studies, metric=metric, goal=goal, by=by))

    def pause(self, *targets: Target) -> list[str]:
        """Suspend trials until they are resumed.

        Args:
            targets: trials, or studies for all of their trials; records or ids.

        Returns:
            The ids of those that were neither paused nor over.

        Raises:
            NotFound: one of them does not exist.
        """
        return self._run(self._client.pause(*targets))

    def resume(self, *targets: Target) -> list[str]:
        """Let paused trials compete for devices again.

        Args:
            targets: as in `pause`.

        Returns:
            The ids of those that were paused.

        Raises:
            NotFound: one of them does not exist.
        """
        return self._run(self._client.resume(*targets))

    def stop(self, *targets: Target) -> ChangedTrials:
        """End trials; their results stay. Works with a head of any version.

        Args:
            targets: as in `pause`.

        Returns:
            The ids of those that were not over; its `notes` say what was lost with them.

        Raises:
            NotFound: one of them does not exist.
        """
        return self._run(self._client.stop(*targets))

    def retry(self, *targets: Target) -> list[str]:
        """Run failed, stopped or cancelled trials again, from their last checkpoint.

        Args:
            targets: as in `pause`.

        Returns:
            The ids of those that will run.

        Raises:
            NotFound: one of them does not exist.
        """
        return self._run(self._client.retry(*targets))

    def tag(
        self, *targets: Target, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> list[str]:
        """Add tags to trials, and remove others.

        Args:
            targets: as in `pause`.
            add: tags to give: words without spaces, commas and slashes.
            remove: tags to take away.

        Returns:
            The ids of the trials.

        Raises:
            NotFound: one of them does not exist.
            UsageError: a tag is not valid.
        """
        return self._run(self._client.tag(*targets, add=add, remove=remove))

    def note(self, *targets: Target, text: str) -> list[str]:
        """Write a note on trials, which replaces the one that they have.

        Args:
            targets: as in `pause`.
            text: the note; empty to take it away.

        Returns:
            The ids of the trials.

        Raises:
            NotFound: one of them does not exist.
        """
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
        """Let trials train longer, or change what a running study is to do.

        Finished trials go on from their last checkpoint; one whose program has ended by itself
        needs a length that rises. A study that runs goes by new stop rules at once. After a change
        of `run_cap` or `axes`, trials that have not begun are drawn again, or ended if they are too
        many.

        Args:
            targets: as in `pause`; the last may be a mapping, which is then `parameters`.
            stop: stop rules by the keys of the study file, `{"max_steps": 1000}`.
            parameters: new values of hyper-parameters, `{"epochs": 20}`.
            new: arguments of the program that the study has no parameter for.
            run_cap: how many trials the study is to have.
            axes: new bounds of a random search, `{"lr": {"max": 0.01}}`.

        Returns:
            The ids of the trials that changed; its `notes` say what became of them.

        Raises:
            NotFound: one of them does not exist.
            UsageError: the arguments contradict each other.
            StudyFileError: a value is not valid.
            Refused: a trial can't be extended.
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
        """Add trials to a study, even if it has finished.

        Args:
            study: as in `study`.
            parameters: values or axes in place of the study's own of these names, as in a study
                file: `{"lr": 3e-4}`, `{"lr": [1e-4, 3e-4]}`, `{"lr": {"min": 0.1, "max": 0.5}}`.
            new: arguments of the program that the study has no parameter for.
            count: how many to draw, or how many new points of a grid to take at most.

        Returns:
            The study, with only the new trials.

        Raises:
            NotFound: there is no such study.
            UsageError: there is nothing to add.
            StudyFileError: a value is not valid.
            Refused: the quota does not allow it.
        """
        return self._run(self._client.add(study, parameters, new=new, count=count))

    def ask(self, study: StudyRef) -> Trial:
        """The next trial of a study whose trials your own loop trains (`search: {asked: true}`).

        Its searcher proposes it from all results that were reported until then.

        Args:
            study: as in `study`.

        Returns:
            The trial, whose `params` are to be tried; `tell` reports the result.

        Raises:
            NotFound: there is no such study.
            Refused: its trials run on nodes, or all of them were asked for.
        """
        return self._run(self._client.ask(study))

    def tell(
        self, trial: TrialRef, metrics: Mapping[str, float] | None = None, *, failure: str = ""
    ) -> Trial:
        """Report the result of a trial that was asked for, which ends it.

        Args:
            trial: as in `trial`.
            metrics: `{"loss": 0.31}`, the study's metric among them.
            failure: why it failed, if it did.

        Returns:
            The trial, with its rank.

        Raises:
            NotFound: there is no such trial.
            UsageError: there is neither a metric nor a failure, or it is over.
        """
        return self._run(self._client.tell(trial, metrics, failure=failure))

    def fork(
        self,
        trial: TrialRef,
        parameters: Changes | None = None,
        *,
        new: Changes | None = None,
        step: int | None = None,
    ) -> Fork:
        """Add a trial that goes on from where another one is.

        Args:
            trial: the other one, as in `trial`; it may run, wait or be over, and isn't changed.
            parameters: values in place of that trial's: `{"learning_rate": 3e-4}`.
            new: the same beyond the bounds of the study, or of arguments that it has no parameter
                for.
            step: of the checkpoint to go on from; if not given, of the newest. Of a trial that
                runs or is parked one is written first, as it is now, if that can be done within
                20 s.

        Returns:
            The new trial, which waits for its turn. Its `notes` say why, if it begins earlier
            than where the other one is.

        Raises:
            NotFound: there is no such trial.
            StudyFileError: a value is not valid.
            Refused: there is no checkpoint, or the quota does not allow it.
        """
        return self._run(self._client.fork(trial, parameters, new=new, step=step))

    def set_metric(
        self, study: StudyRef, metric: str, *, goal: str = "", by: str = ""
    ) -> MetricChoice:
        """Have a study's leaderboard rank by another metric from now on.

        This does not change what policies read; the answer's notes say so where it matters.

        Args:
            study: as in `study`.
            metric: a metric that its trials have reported.
            goal: `minimize` or `maximize`; if empty, the study's goal for that metric, else
                `minimize`.
            by: which value counts: `last`, `best`, or, of the study's signal, `smoothed`, the mean
                of its last tenth. If empty, `smoothed` for the signal, else `last`.

        Raises:
            NotFound: there is no such study.
            UsageError: no trial has reported this metric.
            Refused: no trial has reported anything yet.
        """
        return self._run(self._client.set_metric(study, metric, goal=goal, by=by))

    def set_signal(self, study: StudyRef, metric: str, *, goal: str = "") -> str:
        """Have policies read another metric of a study from now on, including its curves so far.

        Args:
            study: as in `study`.
            metric: a metric that its trials have reported.
            goal: as in `set_metric`.

        Returns:
            The goal, `minimize` or `maximize`.

        Raises:
            NotFound: there is no such study.
            UsageError: no trial has reported this metric.
            Refused: no trial has reported anything yet, or the study has a `stop.target`.
        """
        return self._run(self._client.set_signal(study, metric, goal=goal))

    def remove(self, study: StudyRef) -> None:
        """Delete a study with everything that it left on disks.

        Args:
            study: as in `study`.

        Raises:
            NotFound: there is no such study.
            Refused: some of its trials are not over.
        """
        return self._run(self._client.remove(study))

    def users(self) -> list[User]:
        """What each user has, has used lately and may have; to a user only themselves."""
        return self._run(self._client.users())

    def members(self) -> list[Member]:
        """The nodes and people with a certificate, by name; to a user only themselves."""
        return self._run(self._client.members())

    def invite(self, name: str, role: str = "user", days: float = 1.0) -> Invited:
        """Invite a person to log in, once.

        Args:
            name: the person's name.
            role: `user`, `operator` or `admin`.
            days: how long the invitation is good for.

        Returns:
            The token and the address for `hermesctl login`.

        Raises:
            UsageError: the name or the role is not valid.
            Refused: the head has no certificates of its own.
        """
        return self._run(self._client.invite(name, role, days))

    def revoke(self, name: str, role: str | None = None) -> None:
        """End a person's access at once.

        Args:
            name: the person's name.
            role: only in this role; None for all.

        Raises:
            NotFound: they have no access.
        """
        return self._run(self._client.revoke(name, role))

    def drain(self, node: str) -> Node:
        """Start nothing new on a node, and have its trials leave it.

        Each run goes on to the end of its quantum and is then written to disk; parked trials are
        written at once. If the node drains already, what it could not write is tried again.

        Args:
            node: its name.

        Returns:
            The node as it is now.

        Raises:
            NotFound: there is no such node.
        """
        return self._run(self._client.drain(node))

    def undrain(self, node: str) -> Node:
        """Use a draining node again.

        Args:
            node: its name.

        Raises:
            NotFound: there is no such node.
            Refused: it is not draining.
        """
        return self._run(self._client.undrain(node))

    def lose(self, node: str, for_good: bool = False) -> Node:
        """Have a silent node's trials go on elsewhere now, before its lease is over.

        Only for a machine that is off: what still runs there would run a second time elsewhere
        until its own lease ends it.

        Args:
            node: its name.
            for_good: it is not expected back: its files count as gone, and it is no longer listed.

        Raises:
            NotFound: there is no such node.
            Refused: it is connected.
        """
        return self._run(self._client.lose(node, for_good))

    def release(self, place: str) -> Node:
        """Take a node with its devices, or a device, out of quarantine.

        What failed there is forgotten.

        Args:
            place: a node's name, or a device's (`gpu2/cpu0`).

        Returns:
            The node.

        Raises:
            NotFound: there is no such place.
            Refused: nothing is held against it.
        """
        return self._run(self._client.release(place))

    def wait_drained(self, node: str) -> Node:
        """Return once nothing runs or is parked on a draining node, or it is to be used again.

        Args:
            node: its whole name.

        Raises:
            NotFound: there is no such node.
        """
        return self._run(self._client.wait_drained(node))

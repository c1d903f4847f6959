"""From what people type to ids: an exact id, or a prefix of exactly one that they may see."""

from __future__ import annotations

from collections.abc import Iterable

from hermesd.core.model import NodeId, Place, Study, StudyId, TrialId
from hermesd.core.state import State
from hermesd.head.refusals import NotFound
from hermesd.head.security.access import Asker
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import FieldError, Refused, nearest, shown

# So many trials are named one by one: each costs time in which nothing else is done.
NAMED_LIMIT = 10_000
# So few are all named to whoever asked for one that is not there.
_FEW = 8


def study_id(state: State, text: str, asker: Asker) -> StudyId:
    """The study that is meant. Raises NotFound, Refused for an ambiguous prefix."""
    known = asker.studies(state)
    study, _, number = text.strip().rpartition("/")
    if study in known and number.isdecimal():
        raise Refused(FieldError("study", shown(text), f"a study, not one of its trials: {study}"))
    return _one("study", text, known)


def there(state: State, study: StudyId) -> Study:
    """The study of this id. Raises NotFound for one that was removed since it was asked for."""
    if study not in state.studies:
        raise NotFound(f"study {study} was removed just now")
    return state.studies[study]


def node_id(state: State, text: str, left: bool = False) -> NodeId:
    """The node that is meant, of those that have left if that is meant. Raises NotFound, Refused
    for an ambiguous prefix."""
    return _one(
        "node", text, {name: node for name, node in state.nodes.items() if node.left is left}
    )


def place(state: State, node: str, device: str) -> Place:
    """The node that is meant, or the device of it. Raises NotFound, Refused."""
    known = node_id(state, node)
    if not device:
        return known
    return _one("device", f"{known}/{device}", state.nodes[known].devices)


def trial_id(
    state: State, text: str, asker: Asker, found: dict[str, StudyId] | None = None
) -> TrialId:
    """The trial that is meant: `study/17`, the study by prefix; `found` remembers which that is.
    Raises NotFound, Refused."""
    study, slash, number = text.strip().rpartition("/")
    if not slash or not number:
        expected = "study/number, for example digits/17"
        raise Refused(FieldError("trial", shown(text), expected))
    found = {} if found is None else found
    known = found.get(study) or study_id(state, study, asker)
    found[study] = known
    wanted = f"{known}/{number}"
    if wanted not in state.trials:
        count = len(state.members[known])
        raise NotFound(f"no trial {shown(wanted)}: {known} has trials 1 to {count}")
    return wanted


def selected(
    state: State, selection: pb.Selection, asker: Asker
) -> tuple[StudyId, tuple[TrialId, ...]]:
    """The study and the trials that a selection means: those named, else all of the study.

    Raises NotFound, Refused if nothing or trials of several studies are named.
    """
    if not selection.study and not selection.trials:
        raise Refused(FieldError("selection", "", "a study, or trials"))
    if (count := len(selection.trials)) > NAMED_LIMIT:
        expected = f"at most {NAMED_LIMIT:,}, or the study"
        raise Refused(FieldError("selection.trials", f"{count:,} trials", expected))
    found: dict[str, StudyId] = {}
    trials = tuple(dict.fromkeys(trial_id(state, text, asker, found) for text in selection.trials))
    studies = list(dict.fromkeys(state.trials[trial].spec.study for trial in trials))
    if selection.study:
        studies = list(dict.fromkeys([study_id(state, selection.study, asker), *studies]))
    if len(studies) > 1:
        raise Refused(FieldError("selection.trials", ", ".join(studies), "trials of one study"))
    return studies[0], trials or tuple(state.members[studies[0]])


def _one(noun: str, text: str, known: Iterable[str]) -> str:
    text = text.strip()
    names = list(known)
    if text in names:
        return text
    if not text:
        raise Refused(FieldError(noun, "", "an id or the beginning of one"))
    fitting = [name for name in names if name.startswith(text)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(sorted(fitting)[:5])
        raise Refused(FieldError(noun, shown(text), f"the beginning of one id only, not of {some}"))
    near = nearest(text, names, 0.7)  # of few short names, one is always somewhat near
    hint = f" (did you mean {near}?)" if near else ""
    if not near and noun != "study" and 0 < len(names) <= _FEW:
        hint = f" ({noun}s: {', '.join(names)})"
    raise NotFound(f"no {noun} {shown(text)}{hint}")

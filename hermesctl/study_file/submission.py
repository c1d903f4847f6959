"""From what a person submits to a spec with its working directory, or to every reason why it is
invalid.

The working directory is what is sent, and all paths in the spec are relative to it or absolute. It
is the directory of the study file; or the current one, if the program is found only there (as with
a sweep file in a folder of its own); or the script's own directory.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hermesctl.errors import Place, Problem, StudyFileError, UsageError
from hermesctl.study_file import load
from hermesctl.study_file.load import Document, Scalar, Table, place_of
from hermesctl.study_file.regular_files import kind_of, near_file, open_regular
from hermesctl.study_file.schema import ENUM_ALIASES, build_spec, range_path
from hermesctl.study_file.script_options import read_options, refusals, unknown_options
from hermesctl.study_file.trees import tree_of
from hermesctl.study_file.write import value_data
from hermesctl.text import nearest, printable
from hermesd.pb.hermes.v1.types_pb2 import SearchMethod, Share, StudySpec

_STUDY_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
# What is larger is data of the program.
_STUDY_FILE_BYTES_MAX = 1 << 20
# A command of these alone gives a program its parameters and nothing else.
_PLAIN = {"${env}", "${interpreter}", "${program}", "${args}", "${args_no_boolean_flags}"}
_ENVVAR_MACRO = re.compile(r"\$\{envvar:([^}]*)\}\Z")
# What a program's result may depend on; everything else stays with the submitter.
_TAKEN = frozenset(
    {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "USER"}
    | {"LANG", "LC_ALL", "TZ", "PYTHONHASHSEED", "PYTHONUNBUFFERED"}
)
_TAKEN_PREFIXES = (
    *("TF_", "KERAS_", "JAX_", "XLA_", "TORCH_", "PYTORCH_"),
    *("CUBLAS_", "CUDA_CACHE_", "CUDNN_", "NCCL_"),
    *("OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "HF_HOME", "HF_DATASETS_"),
)
_AN_INTERPRETER = "an interpreter that can be run"
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_?KEY")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A study ready to be sent."""

    spec: StudySpec
    directory: Path
    notes: tuple[str, ...]
    #: Knows where each field was written.
    document: Document
    #: The files that it was read from or is written to.
    own_files: tuple[Path, ...] = ()
    #: What its program certainly refuses: a parameter that is almost called like an option, and a
    #: value that an option is not read from. The notes have them too.
    refused: tuple[Problem, ...] = ()

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """The head's problems with the lines of the file that they are about."""
        root = self.document.root
        nowhere = Place(root.place.source)
        return [
            replace(
                problem,
                field_path=(path := range_path(problem.field_path)),
                place=place_of(root, path) or nowhere,
                value=self._written(problem),
            )
            for problem in problems
        ]

    def _written(self, problem: Problem) -> str:
        """The value as it was written, where the head knows another word for it."""
        root = self.document.root
        for entry in root.entries if isinstance(root, Table) else ():
            if entry.key == problem.field_path and isinstance(entry.node, Scalar):
                word = entry.node.text
                return word if ENUM_ALIASES.get(word) == problem.value else problem.value
        return problem.value


class UnsoundStudy(StudyFileError):
    """A study that is wrong by itself, whatever a head says of `sound`, what is left of it."""

    def __init__(self, problems: Sequence[Problem], sound: Prepared) -> None:
        super().__init__(sorted(problems, key=_order))
        self.sound = sound


def open_study(path: Path) -> Document:
    """The study that `path`, a study file or a program, stands for; a program's is bare."""
    if path.suffix in _STUDY_SUFFIXES:
        return load.read(path)
    if kind := kind_of(path):
        near = near_file(path)
        raise UsageError(
            f"{printable(str(path))}: expected a study file or a program; there is {kind}"
            + (f"; did you mean {printable(near)}?" if near else "")
        )
    place = Place(str(path))
    if expected := load.unfit(path.name):
        raise StudyFileError([Problem(expected, "program", path.name, place=place)])
    if path.suffix == ".py":
        study: dict[str, object] = {"program": path.name, "method": "grid"}
    elif os.access(path, os.X_OK):
        study = {"name": path.stem, "command": [f"./{path.name}", "${args}"], "method": "grid"}
    else:
        raise UsageError(
            f"{printable(str(path))}: expected a study file (.yaml, .yml, .json), a script (.py) or"
            " a program of another kind that can be run (chmod +x)"
        )
    return Document(tree_of(study, str(path)), ())


def from_file(path: Path, document: Document, *others: Path) -> Prepared:
    """The study of a document that was opened at `path`; see `from_document`."""
    prepared = from_document(document, path.absolute().parent, *others)
    return replace(prepared, own_files=(path,) if path.suffix in _STUDY_SUFFIXES else ())


def own_files(prepared: Prepared) -> tuple[Path, ...]:
    """The files of its directory that say just what the study is: its own, and those that were
    written for it by an earlier submit, or read as the same. Of studies that share a tree, those
    that say what others of the same program are, too: else no two that lie side by side would be
    of the same code."""
    found = []
    for path in sorted(prepared.directory.iterdir()):
        if path.suffix not in _STUDY_SUFFIXES or path in prepared.own_files:
            continue
        try:
            if path.is_file() and path.stat().st_size <= _STUDY_FILE_BYTES_MAX:
                other = from_document(load.read(path), prepared.directory).spec
                found += [path] if _are_alike(other, prepared.spec) else []
        except (UsageError, OSError):
            continue  # no study file, whatever else it is
    return (*prepared.own_files, *found)


def _are_alike(one: StudySpec, other: StudySpec) -> bool:
    """Whether two studies are the same, or of one program and both share a tree."""
    both = one, other
    lines = [(spec.program, *spec.command) for spec in both]
    share = all(spec.share == Share.SHARE_TREE for spec in both)
    return one == other or (share and lines[0] == lines[1])


def fewest_trials(spec: StudySpec) -> int:
    """How many trials a study has at least, by its lists of values and its `run_cap`."""
    if spec.method != SearchMethod.SEARCH_METHOD_GRID:
        return spec.run_cap
    points = math.prod(max(1, len(each.values)) for each in spec.parameters if not each.when)
    return min(points, spec.run_cap or points)


def program_sha256(prepared: Prepared) -> str:
    """The SHA-256 of the file that the trials run: the program, or the first of the command's
    words that is a file; empty if none is, or if it cannot be read."""
    spec, directory = prepared.spec, prepared.directory
    for name in _named(spec):
        if _is_within(directory, name):
            try:
                with open_regular(directory / name) as stream:
                    return hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                return ""
    return ""


def from_document(document: Document, home: Path, *others: Path) -> Prepared:
    """The study of a document found in the directory `home`; its program may instead be in one
    of `others`.

    Raises UnsoundStudy with all problems, those of the parsing included.
    """
    spec, problems, notes = build_spec(document.root)
    problems = [*document.problems, *problems]
    # Paths are compared as text from here on, which needs them without `..` and links.
    directory = _working_directory(spec, home.resolve(), others)
    problems += _checked_paths(spec, directory, document, notes)
    prepared = Prepared(spec, directory, (), document)
    if problems:
        raise UnsoundStudy(problems, prepared)
    refused = prepared.located(_refusals(spec, directory))
    # A script may read its options in ways that its text does not tell: only one that is almost
    # called so is certainly meant.
    certainly = tuple(each for each in refused if each.nearest or each.value)
    return replace(prepared, notes=(*notes, *map(str, refused)), refused=certainly)


def _refusals(spec: StudySpec, directory: Path) -> list[Problem]:
    """What the program would refuse of the parameters, where it gets nothing else."""
    if not _gives_only_options(spec):
        return []
    # Of what changes while a trial trains, and of mappings, the names on the line are others.
    if any(each.parameters or each.HasField("sequence") for each in spec.parameters):
        return []
    names = [each.name for each in spec.parameters]
    return refusals(directory / spec.program, names, _texts(spec))


def _texts(spec: StudySpec) -> Iterator[tuple[str, str, str]]:
    """What the program gets for its parameters, where that is listed: the path of the field, the
    name and the text. Without `true` and `false`, which may be flags."""
    for each in spec.parameters:
        listed = [(f"values[{at}]", value) for at, value in enumerate(each.values)]
        if each.HasField("value"):
            listed.append(("value", each.value))
        for key, value in listed:
            data = value_data(value)
            if not isinstance(data, bool):
                path, text = f"parameters.{each.name}.{key}", str(data)
                yield path, each.name, text


def unknown_arguments(
    data: Mapping[str, object], directory: str, sha256: str, names: Iterable[str]
) -> list[Problem]:
    """Which of `names` the program of a study at a head has no option for, as far as its file is
    here and still has this hash."""
    try:
        document = Document(tree_of(data, "study"), ())
        prepared = from_changed_spec(document, Path(directory))
    except UsageError:  # a newer head's, which it understands itself
        return []
    if not _gives_only_options(prepared.spec) or program_sha256(prepared) != sha256:
        return []
    return unknown_options(prepared.directory / prepared.spec.program, names, "--new ")


def options_of(path: Path, document: Document, *others: Path) -> frozenset[str]:
    """The options, `--lr`, of the program of a study that was opened at `path`, as far as its
    source tells; see `from_document`."""
    spec, _, _ = build_spec(document.root)
    if not _gives_only_options(spec):
        return frozenset()
    directory = _working_directory(spec, path.absolute().parent.resolve(), others)
    options = read_options(directory / spec.program)
    return options.accepted if options else frozenset()


def _gives_only_options(spec: StudySpec) -> bool:
    """Whether a Python script gets `--name=value` for each parameter and nothing else."""
    plain = spec.program.endswith(".py") and not spec.search.asked and {*spec.command} <= _PLAIN
    has_them = not spec.command or {"${args}", "${args_no_boolean_flags}"} & {*spec.command}
    return plain and bool(has_them)


def from_changed_spec(document: Document, directory: Path) -> Prepared:
    """A study made from one that the head has: its paths are the head's affair.

    Raises StudyFileError.
    """
    spec, problems, notes = build_spec(document.root)
    if problems:
        raise StudyFileError(problems)
    return Prepared(spec, directory, tuple(notes), document)


def from_data(data: Mapping[str, object], directory: Path) -> Prepared:
    """The study given as a dict, its program in `directory`. Raises UsageError without that."""
    if not directory.is_dir():
        raise UsageError(f"directory: {printable(str(directory))}: expected a directory")
    return from_document(Document(tree_of(data, "study"), ()), directory)


def interpreter(python: str, directory: Path, *, here: bool) -> str:
    """The absolute path of a study's `python`, a name on PATH or a path; default: the
    submitter's. What lies at an absolute path is for the nodes to say, unless they are all `here`.

    Raises UsageError when there is no such program.
    """
    if not python:
        return _submitters_python()
    found = _found_interpreter(python, directory)
    if found is None or (here and shutil.which(found) is None):
        raise UsageError(f"python: {printable(python)}: expected {_AN_INTERPRETER}")
    return os.path.abspath(found)


def inherited_environment(spec: StudySpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the trials inherit: those that matter to a program, and those that its
    command names. Anything that looks like a secret goes only if it is named."""
    named = {m[1] for word in spec.command if (m := _ENVVAR_MACRO.match(word))}
    taken = {
        name: value
        for name, value in environment.items()
        if name in named
        or ((name in _TAKEN or name.startswith(_TAKEN_PREFIXES)) and not _SECRET.search(name))
    }
    return dict(sorted(taken.items()))


def _found_interpreter(python: str, directory: Path) -> str | None:
    path = os.path.expanduser(python)
    if os.path.isabs(path):
        return path
    return shutil.which(str(directory / path) if "/" in python else python)


def _submitters_python() -> str:
    # `hermesctl` found on PATH may live in an environment of its own: then `python` means the
    # submitter's. Named by its path, or used from a script, its own interpreter is meant.
    started = os.path.abspath(sys.argv[0])
    if shutil.which("hermesctl") == started:
        found = shutil.which("python") or shutil.which("python3")
        if found is not None:
            return os.path.abspath(found)
    return sys.executable


def _working_directory(spec: StudySpec, home: Path, others: Sequence[Path]) -> Path:
    if os.path.isabs(spec.program):
        return Path(os.path.normpath(spec.program)).parent
    for directory in (home, *others):
        if any(_is_within(directory, name) for name in _named(spec)):
            return directory
    return home


def _named(spec: StudySpec) -> list[str]:
    """What may be the file that the trials run: the program, else what the command names, a module
    behind -m by its files."""
    if spec.program:
        return [spec.program]
    names = list(spec.command)
    for flag, module in itertools.pairwise(spec.command):
        if flag == "-m":
            path = module.replace(".", "/")
            names += [f"{path}.py", f"{path}/__main__.py"]
    return names


def _is_within(directory: Path, name: str) -> bool:
    path = Path(os.path.normpath(directory / name))
    return bool(name) and path.is_relative_to(directory) and path.is_file()


def _requirements(path: Path) -> str | None:
    """The text of a requirements file; None if it cannot be read, or wants nothing."""
    try:
        with open_regular(path) as stream:
            text = stream.read().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return f"{text.rstrip()}\n" if text.strip() else None


def _checked_paths(
    spec: StudySpec, directory: Path, document: Document, notes: list[str]
) -> list[Problem]:
    problems: list[Problem] = []

    def refuse(expected: str, path: str, value: str, near: str = "") -> None:
        place = place_of(document.root, path)
        problems.append(Problem(expected, path, value, near, place))

    if spec.program:
        if _is_within(directory, spec.program):
            program = Path(os.path.normpath(directory / spec.program))
            spec.program = str(program.relative_to(directory))
        else:
            scripts = [p.name for p in directory.glob("*.py") if p.is_file()]
            near = nearest(spec.program, scripts)
            found = kind_of(directory / spec.program) or "a file elsewhere"
            refuse(f"a file below {directory}; there is {found}", "program", spec.program, near)
    if spec.python and _found_interpreter(spec.python, directory) is None:
        refuse(_AN_INTERPRETER, "python", spec.python)
    # What has several lines is the requirements themselves, as a study from a head has them.
    if spec.requirements and "\n" not in spec.requirements:
        text = _requirements(directory / Path(spec.requirements).expanduser())
        if text is None:
            wanted = f"a requirements file in {directory}, or its lines as a block of text (`|`)"
            refuse(wanted, "requirements", spec.requirements)
        spec.requirements = text or spec.requirements
    for position, entry in enumerate(spec.data):
        target = directory / Path(entry).expanduser()
        if not target.exists():
            refuse(f"something that is there in {directory}", f"data[{position}]", entry)
        elif entry.startswith("~") or ".." in Path(entry).parts:
            spec.data[position] = os.path.abspath(target)
            if not Path(spec.data[position]).is_relative_to(directory):
                notes.append(
                    f"data: {printable(entry)} is not below {printable(str(directory))}, so trials"
                    f" don't find it there; have the program read {printable(spec.data[position])}"
                )
    return problems


def _order(problem: Problem) -> tuple[int, int]:
    place = problem.place
    return (place.line or 0, place.column or 0) if place else (0, 0)

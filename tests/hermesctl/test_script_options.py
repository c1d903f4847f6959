"""A parameter that a script would refuse is found in its source before anything runs."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest

from hermesctl.study_file.script_options import read_options, refusals
from hermesctl.study_file.submission import from_data

ARGPARSE = """
import argparse

def build():
    parser = argparse.ArgumentParser(description="a network")
    parser.add_argument("--learning-rate", "--lr", type=float, default=0.1)
    group = parser.add_argument_group("model")
    group.add_argument("--layers", type=int, choices=[2, 3])
    parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
    parser.add_argument("-b", "--batch_size", type=int, dest="batch")
    return parser

def main(argv=None):
    args = build().parse_args(argv)
    print(args.learning_rate)

if __name__ == "__main__":
    main()
"""
CLICK = """
import click

@click.command()
@click.option("--learning-rate", "-r", type=float, default=0.1)
@click.option("--amp/--no-amp", default=True)
def main(learning_rate, amp):
    print(learning_rate)

if __name__ == "__main__":
    main()
"""
TYPER = """
import typer

def main(learning_rate: float = 0.1, amp: bool = True):
    print(learning_rate)

if __name__ == "__main__":
    typer.run(main)
"""


_RETURNED = """
import argparse

def build():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr")
    return parser

{}
"""


def _around(body: str, parser: str = "", parse: str = "") -> str:
    first = f"import argparse\np = argparse.ArgumentParser({parser})"
    return f"{first}\n{body}\nargs = p.parse_args({parse})\n"


def _script(folder: Path, text: str) -> Path:
    script = folder / "train.py"
    script.write_text(text)
    return script


def _said(text: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the script itself says."""
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    said = io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(said),
        contextlib.suppress(SystemExit),
    ):
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return said.getvalue()


@pytest.mark.parametrize("text", [ARGPARSE, CLICK, TYPER], ids=["argparse", "click", "typer"])
@pytest.mark.parametrize(
    "name",
    ["lr", "lrr", "learning_rate", "learning-rate", "learn", "layers", "amp", "no-amp", "batch"],
)
def test_what_is_read_off_a_script_is_what_it_takes(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = read_options(_script(tmp_path, text))
    assert options is not None
    value = {"amp": "", "no-amp": "", "layers": "=2", "batch": "=8"}.get(name, "=0.5")
    said = _said(text, [f"--{name}{value}"], monkeypatch)
    refuses = any(words in said for words in ("unrecognized arguments", "No such option"))
    assert options.takes(name) is not refuses


def told(script: Path, names: list[str]) -> list[str]:
    return list(map(str, refusals(script, names)))


def test_a_refusal_names_what_was_meant_or_what_there_is(tmp_path: Path) -> None:
    script = _script(tmp_path, ARGPARSE)
    assert told(script, ["learning_rate", "layers"]) == [
        "parameters.learning_rate: expected an option of train.py; did you mean learning-rate?"
    ]
    assert told(script, ["momentum"]) == [
        "parameters.momentum: expected an option of train.py (--amp, --batch_size, --layers,"
        " --learning-rate, --lr, --no-amp)"
    ]


@pytest.mark.parametrize("text", [ARGPARSE, CLICK, TYPER], ids=["argparse", "click", "typer"])
@pytest.mark.parametrize("value", ["0.1", "5", "1e-3", " 1", "nan", "abc", "", "0,1", "[1, 2]"])
def test_a_value_that_is_no_number_is_refused_as_the_script_does(
    text: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = read_options(_script(tmp_path, text))
    assert options is not None
    said = _said(text, [f"--learning-rate={value}"], monkeypatch)
    said = " ".join(said.replace("│", " ").split())  # Typer puts it into a frame
    its_words = ("invalid float value", "not a valid float", "should be a valid number")
    refuses = any(words in said for words in its_words)
    assert options.reads("learning-rate", value) is not refuses


def test_a_refused_value_is_told_with_what_the_option_is_read_by(tmp_path: Path) -> None:
    script = _script(tmp_path, ARGPARSE)
    values = [("parameters.layers.values[1]", "layers", "2.0"), ("p", "learning-rate", "abc")]
    assert list(map(str, refusals(script, [], values))) == [
        "parameters.layers.values[1]: 2.0: expected a whole number, as train.py reads --layers by"
        " int",
        "p: abc: expected a number, as train.py reads --learning-rate by float",
    ]


@pytest.mark.parametrize(
    "text",
    [
        _around('p.add_argument("--a")'),
        _around('p.add_argument("--a", type=rate)'),
        _around('p.add_argument("--a", type=units.float)'),
        _around('from units import float; p.add_argument("--a", type=float)'),
        _around('p.add_argument("--a", type=float, action=Words)'),
        _around('p.add_argument("--a", type=float, nargs="?")'),
        _around('p.add_argument("--a", type=float); p.add_argument("--a", type=words)'),
        TYPER.replace("learning_rate: float = 0.1", "a: str = '1'"),
    ],
)
def test_a_value_that_may_be_understood_is_not_refused(text: str, tmp_path: Path) -> None:
    assert refusals(_script(tmp_path, text), ["a"], [("parameters.a.value", "a", "words")]) == []


def test_an_option_that_must_be_given_is_missed(tmp_path: Path) -> None:
    needs = 'p.add_argument("--data", "-d", required=True); p.add_argument("folder")'
    script = _script(tmp_path, _around(needs))
    assert told(script, ["data"]) == ["parameters: expected folder, which train.py requires"]
    assert told(script, [])[0] == (
        "parameters: expected --data, which train.py requires (`--set parameters.data.value=...`)"
    )


@pytest.mark.parametrize(
    "text",
    [
        _around('p.add_argument("--a"); extend(p)'),
        _around('import sys; sys.argv.pop(); p.add_argument("--a")'),
        _around('for n in "ab": p.add_argument(f"--{n}")'),
        _around('rest = []; p.add_argument("--a")', parse="rest"),
        _around('p.add_argument("rest", nargs=argparse.REMAINDER)'),
        _around('p.add_argument("--a")', "parents=[others]"),
        _around('p.add_argument("--a")').replace("parse_", "parse_known_"),
        "from common import parser\nargs = parser.parse_args()\n",
        _around("p.add_argument_group('x'); extend(p.add_argument_group('y'))"),
        _around("add = p.add_argument; add('--anything')"),
        _around("", parse="namespace=Defaults()"),
        _around("extend(p)").replace("p = ", "p: argparse.ArgumentParser = "),
        "import argparse\nif p := argparse.ArgumentParser():\n    extend(p)\np.parse_args()\n",
        "import argparse\np = extend(argparse.ArgumentParser())\np.parse_args()\n",
        "import argparse\np, q = argparse.ArgumentParser(), 0\nextend(p)\np.parse_args()\n",
        "import configargparse as argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', required=True)\np.parse_args()\n",
        "import jsonargparse\np = jsonargparse.ArgumentParser()\n"
        "p.add_argument('--model', type=Net)\np.parse_args()\n",
        _RETURNED.format("p = build(); extend(p); p.parse_args()"),
        _RETURNED.format("extend(build()).parse_args()"),
        _RETURNED.format("framework.run(build); build().parse_args()"),
        _RETURNED.format("train(HfArgumentParser(Options).parse_args_into_dataclasses())"),
        _RETURNED.format("def unused():\n    build().parse_args()"),
        _RETURNED.format("try:\n    build().parse_args()\nexcept SystemExit:\n    pass"),
        "import argparse\np = argparse.ArgumentParser()\n"
        "if distributed:\n    p.add_argument('--anything', required=True)\np.parse_args()\n",
        "import sys\nlr = float(sys.argv[1])\n",
        "def broken(:\n",
        CLICK.replace("command()", 'command(context_settings={"ignore_unknown_options": True})'),
        CLICK.replace("command()", "group()"),
        CLICK.replace("    main()", "    extend(main)()"),
        CLICK.replace("    main()", "    main(['--learning-rate', '1'])"),
        CLICK.replace("@click.option", "@options.option"),
        TYPER.replace("0.1", "typer.Option(0.1, '--lr')"),
        TYPER.replace("0.1", "RATE"),
        TYPER.replace("float =", "Rate ="),
        TYPER.replace("learning_rate: float", "ANYTHING: float"),
        TYPER.replace("learning_rate: float = 0.1", "*rates: float"),
    ],
)
def test_nothing_is_said_of_a_script_that_may_take_more(text: str, tmp_path: Path) -> None:
    assert refusals(_script(tmp_path, text), ["anything"]) == []


@pytest.mark.parametrize(
    "text",
    [
        _RETURNED.format("args = build().parse_args()"),
        _RETURNED.format("p = build(); p.set_defaults(lr=1); p.parse_args()"),
        "from argparse import ArgumentParser\n\n"
        "def parse_args():\n    p = ArgumentParser('train')\n    p.add_argument('--lr')\n"
        "    return p.parse_args()\n\nargs = parse_args()\n",
    ],
)
def test_a_parser_that_only_its_own_methods_change_is_read(text: str, tmp_path: Path) -> None:
    (refused,) = told(_script(tmp_path, text), ["lrr"])
    assert refused == "parameters.lrr: expected an option of train.py; did you mean lr?"


def test_the_first_letters_of_an_option_that_must_be_given_are_enough(tmp_path: Path) -> None:
    script = _script(tmp_path, _around('p.add_argument("--learning-rate", required=True)'))
    assert refusals(script, ["learn"]) == []


def test_a_study_tells_it_unless_its_command_gives_more(tmp_path: Path) -> None:
    _script(tmp_path, ARGPARSE)
    study = {"program": "train.py", "parameters": {"lrr": {"values": [1, 2]}}}
    (note,) = from_data(study, tmp_path).notes
    assert note == "study: parameters.lrr: expected an option of train.py; did you mean lr?"
    own = {**study, "command": ["${interpreter}", "wrap.py", "${program}", "${args}"]}
    assert from_data(own, tmp_path).notes == ()

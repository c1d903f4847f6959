"""What services are installed with: versions that the project takes, each with its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK, BUILD_LOCK = (ROOT / "deploy" / name for name in ("requirements.lock", "build.lock"))


def locked(lock: Path) -> list[tuple[Requirement, list[str]]]:
    """Each with its hashes."""
    text = "\n".join(line for line in lock.read_text().splitlines() if not line.startswith("#"))
    entries = [entry.split() for entry in text.replace("\\\n", " ").splitlines() if entry.strip()]
    return [
        (
            Requirement(" ".join(word for word in words if not word.startswith("--hash"))),
            [word for word in words if word.startswith("--hash=sha256:")],
        )
        for words in entries
    ]


def test_it_has_all_that_the_project_needs_in_versions_that_it_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {
        LOCK: project["project"]["dependencies"],
        BUILD_LOCK: project["build-system"]["requires"],
    }
    for lock, texts in needed.items():
        found = {canonicalize_name(one.name): one for one, _ in locked(lock)}
        for text in texts:
            wanted = Requirement(text)
            (pinned,) = found[canonicalize_name(wanted.name)].specifier
            assert pinned.operator == "=="
            assert wanted.specifier.contains(pinned.version), (text, pinned)


def test_each_is_known_by_its_content_from_wherever_it_comes() -> None:
    for lock in (LOCK, BUILD_LOCK):
        assert all(hashes for _, hashes in locked(lock))
        assert "://" not in lock.read_text()


def test_the_image_and_the_services_are_installed_by_it() -> None:
    for file in ("deploy/Containerfile", "Makefile"):
        text = (ROOT / file).read_text()
        assert text.count("--require-hashes -r") == 2
        # What makes a package of Hermes is code that runs; pip would fetch the newest for it.
        assert "--no-build-isolation" in text
        assert not re.search(r"pip install [^\n]*--no-deps \.", text)


def test_what_the_image_is_built_on_is_known_by_its_content() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text().splitlines()
    (base,) = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.fullmatch(r"ARG BASE=python:[\w.-]+@sha256:[0-9a-f]{64}", base)
    assert [line for line in lines if line.startswith("FROM ")] == ["FROM ${BASE}"]

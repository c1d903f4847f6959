"""What a forged image of processes says is refused with a reason, and leads out of no trial.

With a real CRIU: `tests/images/test_forged.py`.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainer_shim.host import image
from trainer_shim.host.image import ImageError

SOUND: dict[str, Any] = {
    "clocks": {"monotonic": 1.0, "boottime": 2.0},
    "directory": "/var/lib/hermes/node/trials/digits/1",
    "features": ["x86_64"],
    "form": "image",
    "host": {},
    "kept": {"there": ["a", "b", "b/c"], "links": {"a": "b/c"}},
    "temporary": {"there": ["d", "e"], "links": {"d": "e"}},
    "laid_out": {"b/c": [1, 2]},
    "outside": {"/usr/bin/python3": 7},
    "written": {"/var/log/of-it": 7},
    "appended": ["/var/log/of-all"],
    "shared_folders": ["cache"],
    "parameters": {},
    "step": 5,
}
NAMES = st.text("ab./~\0", max_size=5)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


def places(said: Any) -> Iterator[tuple[str, ...]]:
    """The ways to each value in a manifest."""
    for name, inner in said.items() if isinstance(said, dict) else ():
        yield (name,)
        yield from ((name, *rest) for rest in places(inner))


def test_a_sound_manifest_is_taken() -> None:
    image.see_that_it_is_sound(SOUND)


@given(st.sampled_from(sorted(places(SOUND))), ANYTHING)
def test_whatever_a_manifest_says_it_is_refused_or_sound(
    place: tuple[str, ...], said: object
) -> None:
    forged = copy.deepcopy(SOUND)
    *above, last = place
    inside = forged
    for name in above:
        inside = inside[name]
    inside[last] = said
    with suppress(ImageError):
        image.see_that_it_is_sound(forged)


@given(
    st.sampled_from(["kept", "temporary"]),
    st.lists(NAMES, max_size=4),
    st.dictionaries(NAMES, st.sampled_from(["..", "../outside", "/tmp", "a", "."]), max_size=2),
)
def test_no_name_in_an_image_leads_out_of_the_working_copy(
    which: str, there: list[str], links: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        kept, work, outside = (Path(root, name) for name in ("kept", "work", "outside"))
        for folder in (kept, work, outside):
            folder.mkdir()
        (work / "a").write_text("of the program's")
        (outside / "a").write_text("of somebody else's")
        files = {"there": [*there, *links], "links": links}
        with suppress(ImageError, OSError):
            image.see_that_it_is_sound({**SOUND, which: files})
            for name in there:
                with suppress(OSError):
                    (kept / name).parent.mkdir(parents=True, exist_ok=True)
                    (kept / name).write_text("forged")
            image._return_files(str(kept), files, str(work))
        assert {path.name for path in Path(root).iterdir()} == {"kept", "work", "outside"}
        assert [path.read_text() for path in outside.iterdir()] == ["of somebody else's"]

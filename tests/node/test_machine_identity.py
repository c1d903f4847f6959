"""A machine is known again by its marks, which no copy of a directory takes along."""

from __future__ import annotations

from pathlib import Path

from hermesd.node.machine.identity import marks_of_machine


def machine(root: Path, identity: str, **cards: str) -> tuple[str, ...]:
    """The marks of a machine with these files."""
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "machine-id").write_text(f"{identity}\n")
    for name, address in cards.items():
        card = root / "sys" / "class" / "net" / name
        card.mkdir(parents=True)
        (card / "address").write_text(f"{address}\n")
        if not name.startswith("veth"):
            (card / "device").mkdir()
    return marks_of_machine(root)


def test_a_machine_keeps_a_mark_that_no_other_has(tmp_path: Path) -> None:
    first = machine(tmp_path / "a", "5eed5eed", eth0="00:11:22:33:44:55", veth1="02:00:00:00:00:01")
    assert len(first) == 2
    assert marks_of_machine(tmp_path / "a") == first
    assert not any("5eed" in mark or "44:55" in mark for mark in first)
    diskless = machine(tmp_path / "b", "0ddba11", eth0="00:11:22:33:44:55")
    assert len(set(first) & set(diskless)) == 1
    other = machine(tmp_path / "c", "0ddba12", eth0="00:11:22:33:44:66", veth1="02:00:00:00:00:01")
    assert not set(first) & set(other)


def test_what_is_not_there_marks_nothing(tmp_path: Path) -> None:
    assert marks_of_machine(tmp_path) == ()
    assert machine(tmp_path / "empty", "") == ()

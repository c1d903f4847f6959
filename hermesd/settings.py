"""Where the daemons' settings come from: a TOML file, the environment, flags; checked once.

Each daemon reads its own table; the head those of the pools, too, which nothing else can say.
`HERMES_HEAD_<KEY>` and `HERMES_NODE_<KEY>` override the file, flags override both. Nothing else of
hermesd reads the environment for its settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from hermesd.config import HeadConfig, NodeConfig
from hermesd.pooling import PoolSection
from hermesd.refusal import FieldError, from_pydantic, nearest, one_of, under

TABLES = ("head", "node", "pools")

Section = TypeVar("Section", bound=BaseModel)


class ConfigError(Exception):
    """Settings that will not do; one line each, naming file, key, value and what was expected."""


def load_head(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> HeadConfig:
    """The head's settings. Raises ConfigError."""
    return _load(HeadConfig, "head", path, environ, flags)


def load_node(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> NodeConfig:
    """The node's settings. Raises ConfigError."""
    return _load(NodeConfig, "node", path, environ, flags)


def _load(
    section: type[Section],
    table: str,
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
) -> Section:
    known = [key for key in section.model_fields if key != "pools"]
    values: dict[str, object] = dict(_table(path, table, known))
    origin = dict.fromkeys(values, str(path))
    prefix = f"HERMES_{table.upper()}_"
    for variable in sorted(v for v in environ if v.startswith(prefix)):
        key = variable.removeprefix(prefix).lower()
        if key not in known:
            names = [prefix + name.upper() for name in known]
            wrong = FieldError(variable, "", one_of(names), nearest(variable, names))
            raise ConfigError(f"environment: {wrong}")
        values[key], origin[key] = environ[variable], f"environment: {variable}"
    for key, flag in flags.items():
        if flag is not None:
            values[key], origin[key] = flag, f"--{key.replace('_', '-')}"
    try:
        return section.model_validate(values)
    except ValidationError as error:
        pools = {f"pools.{name}": PoolSection.model_fields for name in _named(values)}
        errors = from_pydantic(error, {"": known, **pools})
        lines = _lines(table, errors, origin, str(path or "settings"))
        raise ConfigError("\n".join(lines)) from None


def _lines(
    table: str, errors: Iterable[FieldError], origin: Mapping[str, str], other: str
) -> Iterable[str]:
    for error in errors:
        key = error.field_path.split(".")[0]
        path = error if key == "pools" else under(table, [error])[0]
        yield f"{origin.get(key, other)}: {path}"


def _named(values: Mapping[str, object]) -> Iterable[str]:
    pools = values.get("pools")
    return pools if isinstance(pools, dict) else ()


def _table(path: Path | None, table: str, known: Iterable[str]) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None
    for name, value in tables.items():
        if name not in TABLES or not isinstance(value, dict):
            near = nearest(name, TABLES)
            wrong = FieldError(name, "", "the tables [head], [node] and [pools.NAME]", near)
            raise ConfigError(f"{path}: {wrong}")
    found: dict[str, object] = tables.get(table, {})
    if "pools" in found:
        wrong = FieldError(f"{table}.pools", "unknown key", one_of(known))
        raise ConfigError(f"{path}: {wrong}; pools are tables of their own: [pools.NAME]")
    if table == "head" and "pools" in tables:
        return {**found, "pools": tables["pools"]}
    return found

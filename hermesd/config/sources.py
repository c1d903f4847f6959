"""Where the daemons' settings come from: a TOML file, the environment and flags, checked once.

Each daemon reads its own table and that of users. The head also reads the table of pools, which can
only be in the file. `HERMES_HEAD_<KEY>` and `HERMES_NODE_<KEY>` override the file, and flags
override both. Nothing else in hermesd reads its settings from the environment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from hermesd.config.pools import PoolSection
from hermesd.config.schema import FairShare, HeadConfig, NodeConfig, UserTerms
from hermesd.expecting import StateRefused
from hermesd.refusal import FieldError, from_pydantic, nearest, one_of, under
from hermesd.security.accounts import not_permitted

Section = TypeVar("Section", HeadConfig, NodeConfig)

# What an option is called on the command line, where that is not its key.
_OPTIONS = {"cpu_slots": "--slots", "state_dir": "--state"}
# Tables of a head's that are not named after it.
SHARED = ("pools", "users", "fair_share")
TABLES = ("head", "node", *SHARED)


class ConfigError(Exception):
    """Settings that will not do; one line each, naming file, key, value and what was expected."""


def load_head(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> HeadConfig:
    """The head's settings. Raises ConfigError."""
    return _load(HeadConfig, "head", path, environ, flags, SHARED)


def load_node(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> NodeConfig:
    """The node's settings. Raises ConfigError."""
    return _load(NodeConfig, "node", path, environ, flags, ("users",))


def _load(
    section: type[Section],
    table: str,
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    beside: tuple[str, ...] = (),
) -> Section:
    """`beside` names the tables of the file that are the section's fields as well."""
    known = [name for name in section.model_fields if name not in beside]
    values: dict[str, object] = dict(_table(path, table))
    for name in values.keys() & set(beside):
        wrong = FieldError(f"{table}.{name}", "", f"a table [{name}] of its own")
        raise ConfigError(f"{path}: {wrong}")
    for name in beside:
        if found := _table(path, name):
            values[name] = found
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
            values[key], origin[key] = flag, _OPTIONS.get(key, f"--{key.replace('_', '-')}")
    try:
        settings = section.model_validate(values)
    except PermissionError as error:  # of what lies in the state that they name
        raise ConfigError(not_permitted(error)) from None
    except StateRefused as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        where = f"{origin.get('state_dir', 'settings')}: {table}.state_dir"
        raise ConfigError(f"{where} = {values.get('state_dir', '')}: {error.strerror}") from None
    except ValidationError as error:
        errors = from_pydantic(error, {"": known, **_keys(error)})
        lines = _lines(table, errors, origin, str(path or "settings"), beside)
        raise ConfigError("\n".join(lines)) from None
    settings.came_from(origin)
    return settings


def _lines(
    table: str,
    errors: Iterable[FieldError],
    origin: Mapping[str, str],
    other: str,
    beside: tuple[str, ...],
) -> Iterable[str]:
    for error in errors:
        key = error.field_path.split(".")[0]
        told = error if key in beside else under(table, [error])[0]
        yield f"{origin.get(key, other)}: {told}"


def _keys(error: ValidationError) -> Mapping[str, Iterable[str]]:
    """The keys that the tables of pools, users and shares may have, where one has another."""
    paths = [".".join(map(str, item["loc"][:-1])) for item in error.errors(include_url=False)]
    shares = {path: FairShare.model_fields for path in paths if path == "fair_share"}
    users = {path: UserTerms.model_fields for path in paths if path.startswith("users.")}
    pools = {path: PoolSection.model_fields for path in paths if path.startswith("pools.")}
    return shares | users | pools


def _table(path: Path | None, table: str) -> Mapping[str, object]:
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
            expected = "the tables [head], [node], [pools.NAME], [users.NAME] and [fair_share]"
            wrong = FieldError(name, "", expected, near)
            raise ConfigError(f"{path}: {wrong}")
    found: dict[str, object] = tables.get(table, {})
    return found

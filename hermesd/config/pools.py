"""The pools of a head's configuration, checked and in the core's form.

An invalid pool is refused when the head starts, and never only when it is first used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from hermesd.core.model import DEFAULT_POOL, OWN_POOL, Plugin, Pool, is_own
from hermesd.core.placement import make_placement
from hermesd.core.policy import BadSetting
from hermesd.refusal import Refused


def _plugin(value: object, info: ValidationInfo) -> object:
    """A bare name, a policy's with its settings in it if need be, or a table with the name and the
    settings beside it: as in a study file."""
    if isinstance(value, str) and info.field_name == "policy":
        return _spelled(value)
    if isinstance(value, str):
        return Plugin(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ValueError("a name, or a table of the `name` and its settings")
    settings = ((key, _setting(one)) for key, one in value.items() if key != "name")
    return Plugin(value["name"], tuple(settings))


def _spelled(text: str) -> Plugin:
    # Policies bring NumPy, which a node daemon, that reads these settings too, does not need.
    from hermesd.config.policy_line import split

    try:
        meant = split(text)
    except Refused as error:
        raise ValueError(f"{error.errors[0].expected}, not {error.errors[0].value}") from None
    if meant.placement is not None:
        raise ValueError("a policy; the pool's `placement` is a key of its own")
    return meant.policy


def _setting(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _made(plugin: Plugin, info: ValidationInfo) -> Plugin:
    for key, value in plugin.settings:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"a finite number for {key}, not {value}")
    from hermesd.policy import make_policy

    try:
        make_policy(plugin) if info.field_name == "policy" else make_placement(plugin)
    except BadSetting as bad:
        hint = f" (did you mean {bad.nearest}?)" if bad.nearest else ""
        raise ValueError(f"{bad.expected} for {bad.field}, not {bad.value}{hint}") from None
    return plugin


def _pattern(pattern: str) -> str:
    if not pattern or not pattern.isprintable() or any(c.isspace() for c in pattern):
        raise ValueError("the name of a node, or a pattern such as a100-*")
    return pattern


Checked = Annotated[Plugin, BeforeValidator(_plugin), AfterValidator(_made)]
POOL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def _table(section: object) -> object:
    if not isinstance(section, Mapping | PoolSection):
        raise ValueError("a table such as [pools.gold]")
    return section


class PoolSection(BaseModel):
    """`[pools.NAME]`. Its quantum is a setting of its policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[Annotated[str, AfterValidator(_pattern)], ...] = ()
    policy: Checked | None = None
    placement: Checked | None = None
    private: bool = False


class Pools(BaseModel):
    """All of them, in the order in which they were written."""

    model_config = ConfigDict(frozen=True)

    pools: dict[str, Annotated[PoolSection, BeforeValidator(_table)]] = Field(default_factory=dict)

    @field_validator("pools")
    @classmethod
    def _each_node_in_one(cls, pools: dict[str, PoolSection]) -> dict[str, PoolSection]:
        owner: dict[str, str] = {}
        for name, pool in pools.items():
            if not POOL_NAME.fullmatch(name):
                raise ValueError(f"a name of a-z, 0-9, dot, hyphen and underscore, not {name}")
            if name == OWN_POOL or is_own(name):
                raise ValueError(f"another name than {name}: it is for nodes that users bring")
            if name == DEFAULT_POOL and pool.nodes:
                raise ValueError(f"no nodes in {DEFAULT_POOL}: it has all that no other pool names")
            if name != DEFAULT_POOL and not pool.nodes:
                raise ValueError(f"nodes in {name}: names, or patterns such as a100-*")
            for node in pool.nodes:
                if owner.setdefault(node, name) != name:
                    raise ValueError(f"{node} in one pool, not in {owner[node]} and {name}")
        return pools


def configured(sections: Mapping[str, PoolSection]) -> tuple[Pool, ...]:
    """The pools as the core has them."""
    return tuple(Pool(name, **dict(section)) for name, section in sections.items())

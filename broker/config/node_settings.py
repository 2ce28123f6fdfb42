"""The settings of the nodes after the first: the second node's id and ports are those of the first node plus 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.config.endpoints import Endpoint, shifted
from broker.config.sources import Rank, Setting

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092


def settings_for_node(settings: dict[str, Setting], steps: int) -> dict[str, Setting]:
    """Derive the settings of the node that is ``steps`` after the first node from the first node's settings."""
    if steps == 0:
        return settings
    first = settings.get("node.id") or settings.get("broker.id")
    if first is None:
        settings["node.id"] = Setting("node.id", str(1 + steps), Rank.DEFAULT, "the number of the node")
    elif first.rank is not Rank.ONE_NODE:
        settings.pop("broker.id", None)
        number = str(int(first.raw) + steps) if first.raw.strip().isdecimal() else first.raw
        settings["node.id"] = replace(first, name="node.id", raw=number)
    if not {"listeners", "advertised.listeners"} & settings.keys():
        default = str(Endpoint("PLAINTEXT", DEFAULT_HOST, DEFAULT_PORT + steps))
        settings["listeners"] = Setting("listeners", default, Rank.DEFAULT, "the number of the node")
        return settings
    for name in ("listeners", "advertised.listeners"):
        setting = settings.get(name)
        if setting is not None and setting.rank is not Rank.ONE_NODE:
            settings[name] = replace(setting, raw=shifted(setting.raw, steps))
    return settings

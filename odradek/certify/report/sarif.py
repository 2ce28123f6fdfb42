"""Notices as SARIF 2.1.0, the OASIS exchange format of static analysers, which code hosts and editors display."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import metadata, version
from typing import Any, Final
from urllib.parse import quote

from odradek.certify.report.notices import Notice, Rule, rules

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_FINGERPRINT: Final = "odradek/v1"


def sarif(notices: Sequence[Notice], file: str | None = None) -> str:
    """The SARIF log as JSON. ``file`` is the path of certify.toml, relative to the root of the user's project.

    Without ``file`` the results have no location, because a command line is not in a file.
    """
    known = rules(notices)
    driver = {
        "name": "odradek",
        "version": version("odradek"),
        "rules": [_rule(each, _documentation()) for each in known],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, known.index(each.rule), file) for each in notices],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: Rule, documentation: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": rule.id,
        "shortDescription": {"text": rule.sentence},
        "fullDescription": {"text": rule.sentence},
        "help": {"text": f"See {rule.link} in the documentation of odradek."},
    }
    if documentation:
        shown["helpUri"] = f"{documentation.rstrip('/')}/{rule.link}"
    return shown


def _documentation() -> str:
    """URL of the package's documentation, or "": then no helpUri is written, as it must be absolute."""
    urls = (each.partition(",") for each in metadata("odradek").get_all("Project-URL") or ())
    return next((url.strip() for label, _, url in urls if label.strip().lower() == "documentation"), "")


def _result(notice: Notice, rule_index: int, file: str | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "ruleId": notice.rule.id,
        "ruleIndex": rule_index,
        "level": notice.level,
        "message": {"text": _text(f"{notice.title}\n{notice.message}")},
    }
    if file is not None:
        # Viewers require a line, although a finding concerns the whole file.
        artifact = {"uri": quote(file)}
        shown["locations"] = [
            {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": 1}}}
        ]
    if notice.identity:
        shown["partialFingerprints"] = {_FINGERPRINT: notice.identity}
    if notice.facts:
        shown["properties"] = dict(notice.facts)
    return shown


def _text(message: str) -> str:
    """Escape braces, which enclose placeholders, by doubling them (SARIF 2.1.0, 3.11.5)."""
    return message.replace("{", "{{").replace("}", "}}")

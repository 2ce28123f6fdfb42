"""The reports of a certificate in a directory: JSON, HTML, JUnit XML, SARIF, a badge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from odradek.certify.certifier import Certificate
from odradek.certify.report.badge import badge
from odradek.certify.report.certificate import as_dict
from odradek.certify.report.junit import junit
from odradek.certify.report.notices import of_certificate
from odradek.certify.report.page import page
from odradek.certify.report.sarif import sarif

JSON: Final = "certificate.json"


def write(
    certificate: Certificate,
    directory: Path,
    options: Mapping[str, Any] | None = None,
    file: str | None = None,
) -> None:
    """``options`` are those of the command, for `options`; ``file`` is the certify.toml, if there is one."""
    directory.mkdir(parents=True, exist_ok=True)
    shown = as_dict(certificate) | {"options": dict(options or {})}
    files = {
        JSON: json.dumps(shown, indent=2, ensure_ascii=False) + "\n",
        "certificate.html": page(certificate),
        "badge.svg": badge(certificate),
        "junit.xml": junit(certificate),
        "certificate.sarif": sarif(of_certificate(certificate), file),
    }
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def options(directory: Path) -> dict[str, Any]:
    """With which the certificate that lies there was made."""
    return dict(json.loads((directory / JSON).read_text(encoding="utf-8"))["options"])


def plan(directory: Path, plan_id: str) -> str:
    """The plan of this id in the certificate that lies there, as JSON. ``ValueError`` names those that there are."""
    failures = json.loads((directory / JSON).read_text(encoding="utf-8"))["failures"]
    for failure in failures:
        if failure["plan_id"] == plan_id:
            return json.dumps(failure["plan"])
    known = ", ".join(each["plan_id"] for each in failures) or "none"
    raise ValueError(f"there is no plan {plan_id} in {directory / JSON}; there is {known}")

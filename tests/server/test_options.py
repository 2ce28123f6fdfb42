"""The command line of the broker."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from cryptography import x509
from hypothesis import example, given
from hypothesis import strategies as st

from broker.config.settings import ControlPort, Settings
from broker.config.sources import OF_THE_START
from server.click_options import options as click_options
from server.options import CREATE_TOPICS_VARIABLE, command, parse, plain_options
from storage.config import ConfigError


def refused(*argv: str) -> str:
    with pytest.raises(click.ClickException) as error:
        parse(argv, {})
    return error.value.format_message()


def test_without_options_the_broker_listens_on_port_9092_of_this_machine_and_keeps_nothing():
    settings = parse([], {})
    assert [str(each) for each in settings.config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert (settings.data_dir, settings.topics, settings.features, settings.warnings) == (None, (), {}, ())


@pytest.mark.parametrize(
    ("argv", "listener"),
    [
        (["--port", "0"], "PLAINTEXT://127.0.0.1:0"),
        (["--host", "0.0.0.0"], "PLAINTEXT://0.0.0.0:9092"),
        (["--host", "::1", "--port", "1"], "PLAINTEXT://[::1]:1"),
    ],
)
def test_host_and_port_make_the_listener(argv: list[str], listener: str):
    assert str(parse(argv, {"KAFKA_LISTENERS": "PLAINTEXT://:5"}).config.listeners[0]) == listener


IMAGE = ["--default", "listeners=PLAINTEXT://0.0.0.0:9092", "--default", "log.dirs=/data"]


@pytest.mark.parametrize(
    ("argv", "listener"),
    [
        ([], "PLAINTEXT://0.0.0.0:9092"),
        (["--port", "9095"], "PLAINTEXT://0.0.0.0:9095"),
        (["--host", "127.0.0.1"], "PLAINTEXT://127.0.0.1:9092"),
        (["--set", "listeners=PLAINTEXT://127.0.0.1:1"], "PLAINTEXT://127.0.0.1:1"),
    ],
)
def test_the_host_of_the_default_listeners_is_that_of_host_and_port(argv: list[str], listener: str):
    settings = parse([*IMAGE, *argv], {})
    assert str(settings.config.listeners[0]) == listener
    assert (settings.data_dir, settings.warnings) == (Path("/data"), ())


def test_the_host_of_the_default_listeners_is_that_of_the_control_port_too():
    token = {"ODRADEK_CONTROL_TOKEN": "secret"}
    assert parse([*IMAGE, "--control-port", "18092"], token).control == ControlPort("0.0.0.0", 18092)
    assert parse(IMAGE, {**token, "ODRADEK_CONTROL_PORT": "1"}).control == ControlPort("0.0.0.0", 1)
    argv = [*IMAGE, "--control-port", "1", "--control-host", "127.0.0.1"]
    assert parse(argv, {}).control == ControlPort("127.0.0.1", 1)
    with pytest.raises(click.ClickException, match="ODRADEK_CONTROL_TOKEN"):
        parse([*IMAGE, "--control-port", "18092"], {})


def test_the_default_listeners_are_secured_as_listeners_of_a_file_are(tmp_path: Path):
    argv = [*IMAGE, "--data-dir", str(tmp_path), "--tls", "--sasl", "alice:secret"]
    listener = parse(argv, {}).config.listeners[0]
    assert (str(listener), listener.security_protocol) == ("PLAINTEXT://0.0.0.0:9092", "SASL_SSL")


def test_a_default_that_is_no_assignment_is_a_usage_error():
    assert "--default log.dirs: expected KEY=VALUE" in refused("--default", "log.dirs")


def test_data_that_goes_with_a_container_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    assert parse([], {}).warnings == ()
    monkeypatch.setattr("os.getpid", lambda: 1)  # the first process of a container
    assert parse([*IMAGE], {}).warnings == ()
    [warning] = parse([], {}).warnings
    assert "records are lost" in warning


def test_a_service_of_kubernetes_opens_no_control_port():
    environ = {"ODRADEK_CONTROL_PORT": "tcp://10.96.0.1:18092", "ODRADEK_CONTROL_SERVICE_HOST": "10.96.0.1"}
    assert parse([], environ).control is None
    with pytest.raises(click.ClickException, match="is not a port"):
        parse([], {"ODRADEK_CONTROL_PORT": "tcp://10.96.0.1:18092"})


def by_click(argv: list[str]) -> dict[str, object] | None:
    """The options as click parses them, None for a usage error."""
    found: list[dict[str, object]] = []
    with_all = click.Command(
        "serve", callback=lambda **options: found.append(options), params=click_options()
    )
    try:
        with_all.main(argv, standalone_mode=False)
    except click.ClickException:
        return None
    return found[0] if found else None


WORDS = (
    *(
        "--host",
        "--port",
        "--data-dir",
        "--config",
        "--set",
        "--topic",
        "--feature",
        "--preview",
        "--nodes",
        "--control-port",
    ),
    *(
        "--control-host",
        "--ends-with-stdin",
        "--log-format",
        "--log-level",
        "--tls",
        "--tls-directory",
        "--sasl",
        "--help",
        "-h",
        "--unknown",
        "--",
        "-",
    ),
    *(
        "--port=1",
        "--port=",
        "--set=a=b",
        "--topic=a:1",
        "--preview=KAFKA-15591",
        "--nodes=2",
        "--ends-with-stdin=1",
        "--log-level=info",
    ),
    *(
        "0",
        "1",
        "65535",
        "65536",
        "-1",
        " 1",
        "1_0",
        "\u0661",
        "007",
        "a=b",
        "a:4:k=v,w",
        "",
        "json",
        "JSON",
        "KAFKA-15591",
        "x y",
    ),
    *(".", __file__, "/nothing/here"),
)


@given(st.lists(st.sampled_from(WORDS), max_size=6))
@example([])
@example(
    ["--port", "9092", "--data-dir", ".", "--set", "a=b", "--set", "c=d", "--nodes", "3", "--ends-with-stdin"]
)
@example(["--log-format", "json", "--log-level=info", "--topic", "a", "--topic", "b:2", "--feature", "f=1"])
def test_what_is_taken_without_click_is_what_click_would_have_taken(argv: list[str]):
    options = plain_options(argv)
    assert options is None or options == by_click(argv)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--data-dir",
            ".",
            "--log-format=json",
            "--log-level",
            "debug",
        ],
        [
            "--set",
            "a=b",
            "--set",
            "c=d",
            "--topic",
            "t:1",
            "--feature",
            "f=1",
            "--preview",
            "KAFKA-15591",
            "--nodes",
            "3",
            "--ends-with-stdin",
        ],
        ["--control-port", "0", "--control-host", "localhost"],
        IMAGE,
    ],
)
def test_a_plain_command_line_is_taken_without_click(argv: list[str]):
    assert plain_options(argv) == by_click(argv)


def test_each_source_is_read(tmp_path: Path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nfetch.max.bytes=2048\n")
    argv = [
        "--config",
        str(file),
        "--set",
        "num.partitions=3",
        "--data-dir",
        str(tmp_path),
        "--log-format",
        "json",
    ]
    config = parse(argv, {"KAFKA_FETCH_MAX_BYTES": "4096"}).config
    assert (config.num_partitions, config.fetch_max_bytes) == (3, 4096)
    assert (config.log_dir, config.log_format, config.log_level) == (tmp_path, "json", "info")


def test_a_value_may_hold_an_equals_sign():
    assert parse(["--set", "broker.rack=a=b"], {}).config.broker_rack == "a=b"


def test_topics_to_create_are_read_and_checked():
    argv = ["--topic", "a:4:cleanup.policy=compact,delete,segment.ms=5", "--topic", "b:1", "--topic", "c"]
    first, second, third = parse(argv, {}).topics
    assert (first.name, first.partitions) == ("a", 4)
    assert first.configs == {"cleanup.policy": "compact,delete", "segment.ms": "5"}
    assert (second.name, second.partitions, second.configs) == ("b", 1, {})
    assert (third.name, third.partitions, third.configs) == ("c", 1, {})
    (by_default,) = parse(["--topic", "c", "--set", "num.partitions=3"], {}).topics
    assert by_default.partitions == 3


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--topic", "a:0"], "expected NAME[:PARTITIONS"),
        (["--topic", "a:x"], "expected NAME[:PARTITIONS"),
        (["--topic", "a/b:1"], "'a/b' is not a name that Kafka allows"),
        (["--topic", "..:1"], "'..' is not a name that Kafka allows"),
        (["--topic", "a:1:compact"], "expected key=value, not 'compact'"),
        (["--topic", "a:1:3"], "The setting default.replication.factor sets the number of replicas."),
        (["--topic", "a:1:segment.bytes=1"], "Value must be at least 1048576"),
        (["--topic", "a:1:nonsense=1"], "Unknown topic config name: nonsense"),
        (["--topic", "a:1", "--topic", "a:2"], "--topic a is given more than once"),
        (["--preview", "KAFKA-1"], "'KAFKA-1' is not 'KAFKA-15591'"),
        (["--set", "odradek.preview=KAFKA-1"], "must be one of: KAFKA-15591"),
        (
            ["--preview", "KAFKA-15591", "--set", "odradek.preview="],
            "--set odradek.preview: --preview sets it, too",
        ),
        (
            ["--feature", "unknown.version=1"],
            "--feature unknown.version=1: Unsupported feature: unknown.version. Supported features are: "
            "eligible.leader.replicas.version, group.version, share.version, streams.version, transaction.version",
        ),
        (["--feature", "transaction.version=3"], "No feature:transaction.version with feature level 3"),
        (["--feature", "group.version=-1"], "No feature:group.version with feature level -1"),
        (["--feature", "share.version=3"], "No feature:share.version with feature level 3"),
        (
            ["--feature", "metadata.version=30"],
            "odradek export --metadata-version lowers the level of a copy",
        ),
        (
            ["--feature", "group.version"],
            "Can't parse feature=level string group.version: equals sign not found.",
        ),
        (
            ["--feature", "group.version=40000"],
            "Can't parse feature=level string group.version=40000: unable to parse 40000 as a short.",
        ),
        (["--nodes", "2", "--set", "odradek.node.3.broker.rack=a"], "there is no node 3, nodes are 1 to 2"),
        (["--control-port", "0", "--control-host", "0.0.0.0"], "set odradek.control.token or the variable"),
        (["--control-host", "::1"], "there is no control port without --control-port"),
        (["--set", "num.partitions"], "expected KEY=VALUE"),
        (["--set", "num.partitions=x"], "Not a number of type INT (from the command line)"),
        (["--set", "odradek.x=1"], "Unknown property odradek.x"),
        (
            ["--set", "num.partition=3"],
            "Unknown property num.partition (from the command line); did you mean num.partitions?",
        ),
        (["--port", "0", "--set", "listeners=A://:1"], "--set listeners: --host and --port set it, too"),
        (["--host", "::1", "--set", "listeners=A://:1"], "--set listeners: --host and --port set it, too"),
        (["--data-dir", "a, b"], "--data-dir a, b: Kafka's log.dirs separates directories by commas"),
        (["--data-dir", "a", "--set", "log.dirs=b"], "--set log.dirs: --data-dir sets it, too"),
        (["--data-dir", "a", "--set", "log.dir=b"], "--set log.dir: --data-dir sets it, too"),
        (
            ["--log-format", "json", "--set", "odradek.log.format=human"],
            "--set odradek.log.format: --log-format sets it, too",
        ),
        (
            ["--log-level", "info", "--set", "odradek.log.level=debug"],
            "--set odradek.log.level: --log-level sets it, too",
        ),
        (["--config", "/there/is/none"], "does not exist"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--prot", "1"], "No such option"),
        (["extra"], "unexpected extra argument"),
        (["--sasl", "alice"], "--sasl: expected USER:PASSWORD[:MECHANISM]"),
        (
            ["--sasl", "a:b", "--set", "listeners=SSL://:1"],
            "--sasl applies to none of the listeners of the command line: SSL:SSL",
        ),
        (
            ["--tls", "--port", "0", "--set", "listeners=A://:1"],
            "--set listeners: --host and --port set it, too",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_clear_line(argv: list[str], message: str):
    assert message in refused(*argv)


def test_previews_are_chosen_by_name():
    assert parse([], {}).config.preview == ()
    for argv in (["--preview", "KAFKA-15591"] * 2, ["--set", "odradek.preview=KAFKA-15591"]):
        assert parse(argv, {}).config.preview == ("KAFKA-15591",)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("eligible.leader.replicas.version", 0),
        ("group.version", 0),
        ("share.version", 0),
        ("streams.version", 0),
        ("transaction.version", 1),
    ],
)
def test_a_feature_level_can_be_chosen(name: str, level: int):
    assert parse(["--feature", f"{name}={level}"], {}).features == {name: level}


def test_the_last_level_of_a_feature_counts():
    argv = ["--feature", "group.version=0", "--feature", "group.version= +1"]
    assert parse(argv, {}).features == {"group.version": 1}


def test_warnings_wait_until_the_log_is_set_up():
    assert parse([], {"KAFKA_NUM_PARTITION": "3"}).warnings[0].startswith("unknown property num.partition ")


def test_an_unknown_flag_names_the_nearest_and_the_exit_code_is_not_zero():
    result = CliRunner().invoke(command(lambda settings: None, {}), ["--log-formt", "json"])
    assert result.exit_code == 2
    assert "--log-format" in result.output


def test_the_command_hands_the_settings_on_and_help_lists_every_option():
    seen: list[Settings] = []
    runner = CliRunner()
    assert runner.invoke(command(seen.append, {}), ["--port", "1"]).exit_code == 0
    assert seen[0].config.listeners[0].port == 1
    output = runner.invoke(command(seen.append, {}), ["--help"]).output
    for option in ("--host", "--port", "--data-dir", "--config", "--set", "--topic", "--feature", "--nodes"):
        assert option in output
    assert len(seen) == 1


def test_config_errors_are_values_that_end_the_start():
    assert issubclass(ConfigError, ValueError)


def test_a_control_port_is_of_this_machine_unless_it_has_a_token():
    assert parse([], {"ODRADEK_CONTROL": "http://127.0.0.1:1"}).control is None
    assert parse(["--control-port", "0"], {}).control == ControlPort("127.0.0.1", 0)
    settings = parse(
        ["--control-port", "1", "--control-host", "0.0.0.0"], {"ODRADEK_CONTROL_TOKEN": "secret"}
    )
    assert settings.control == ControlPort("0.0.0.0", 1)
    assert settings.config.control_token == "secret"


# TLS and SASL


def test_tls_and_users_make_the_listener_and_what_it_needs(tmp_path: Path):
    settings = parse(["--port", "0", "--data-dir", str(tmp_path), "--tls", "--sasl", "alice:secret"], {})
    assert [str(each) for each in settings.config.listeners] == ["SASL_SSL://127.0.0.1:0"]
    assert settings.authority == tmp_path / "tls"
    assert settings.config.values["ssl.keystore.location"] == str(tmp_path / "tls" / "server.pem")
    assert settings.config.values["sasl.enabled.mechanisms"] == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert [each.name for each in settings.users] == ["alice", "alice"]
    assert "secret" not in repr(settings)


def test_the_certificate_has_the_names_that_each_node_is_reached_by(tmp_path: Path):
    variables = {
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka-1:9092",
        "ODRADEK_NODE_2_ADVERTISED_LISTENERS": "PLAINTEXT://[fe80::1%25eth0]:9093",
    }
    settings = parse(["--nodes", "2", "--tls-directory", str(tmp_path)], variables)
    assert {each.listeners[0].security_protocol for each in settings.nodes} == {"SSL"}
    certificate = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"kafka-1", "fe80::1"} <= {str(each.value) for each in names}


def test_without_a_data_directory_the_authority_goes_with_the_process():
    code = "from server.options import parse; print(parse(['--tls'], {}).authority)"
    folder = Path(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()
    )
    assert folder.name.startswith("odradek-tls-")
    assert not folder.exists()


def test_users_come_by_variable_where_no_other_user_reads_it():
    settings = parse(["--port", "0"], {"ODRADEK_SASL": "alice:secret:PLAIN"})
    assert [str(each) for each in settings.config.listeners] == ["SASL_PLAINTEXT://127.0.0.1:0"]
    assert settings.authority is None


# Variables of containers


def by_variables(*argv: str, **environ: str) -> Settings:
    return parse(argv, environ)


def test_topics_come_by_variable_in_our_form_and_in_that_of_other_images():
    settings = by_variables(ODRADEK_TOPICS="orders:4, payments", KAFKA_NUM_PARTITIONS="3")
    assert [(each.name, each.partitions) for each in settings.topics] == [("orders", 4), ("payments", 3)]
    settings = by_variables(ODRADEK_TOPICS="a:1:cleanup.policy=compact,delete,segment.ms=5;b:2,c\nd:3")
    assert [(each.name, each.partitions) for each in settings.topics] == [
        ("a", 1),
        ("b", 2),
        ("c", 1),
        ("d", 3),
    ]
    assert settings.topics[0].configs == {"cleanup.policy": "compact,delete", "segment.ms": "5"}
    settings = by_variables("--nodes", "2", KAFKA_CREATE_TOPICS="a:4:2,b:1:1:compact\nc")
    assert [(each.name, each.partitions, each.replication_factor) for each in settings.topics] == [
        ("a", 4, 2),
        ("b", 1, 1),
        ("c", 1, -1),
    ]
    assert settings.topics[1].configs == {"cleanup.policy": "compact"}
    assert settings.warnings == ()


def test_an_option_decides_over_the_variable():
    settings = by_variables("--topic", "a:9", ODRADEK_TOPICS="a:1,b:1", KAFKA_CREATE_TOPICS="b:2:1,c:3:1")
    assert [(each.name, each.partitions) for each in settings.topics] == [("a", 9), ("b", 1), ("c", 3)]
    access = {"ODRADEK_CONTROL_PORT": "1", "ODRADEK_CONTROL_HOST": "0.0.0.0", "ODRADEK_CONTROL_TOKEN": "s"}
    assert by_variables(**access).control == ControlPort("0.0.0.0", 1)
    assert by_variables("--control-port", "2", "--control-host", "::1", **access).control == ControlPort(
        "::1", 2
    )


def test_rules_of_the_start_come_by_variable():
    faults = "EndTxn nth=2 -> lose-answer; slow-disk delay=1ms\n"
    assert by_variables(ODRADEK_FAULTS=faults).faults == (
        "EndTxn nth=2 -> lose-answer",
        "slow-disk delay=1ms",
    )
    assert by_variables(ODRADEK_FAULTS="", ODRADEK_TOPICS="", ODRADEK_CONTROL_PORT="").faults == ()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ODRADEK_TOPICS", "a:x", "ODRADEK_TOPICS a:x: expected NAME[:PARTITIONS"),
        ("ODRADEK_TOPICS", "a/b", "ODRADEK_TOPICS a/b: 'a/b' is not a name"),
        ("ODRADEK_TOPICS", "a:1,a:2", "ODRADEK_TOPICS: the topic a is given more than once"),
        ("ODRADEK_TOPICS", "a:1:segment.bytes=1", "ODRADEK_TOPICS a:1:segment.bytes=1: "),
        ("KAFKA_CREATE_TOPICS", "a:1:3", "KAFKA_CREATE_TOPICS a:1:3: 3 replicas need 3 nodes"),
        ("KAFKA_CREATE_TOPICS", "a:1:x", "expected NAME:PARTITIONS:REPLICAS[:CLEANUP.POLICY]"),
        ("KAFKA_CREATE_TOPICS", "a:1:1:squash", "cleanup.policy"),
        ("ODRADEK_CONTROL_PORT", "x", "ODRADEK_CONTROL_PORT: 'x' is not a port (0 to 65535)"),
        ("ODRADEK_CONTROL_PORT", "65536", "ODRADEK_CONTROL_PORT: '65536' is not a port"),
        ("ODRADEK_CONTROL_HOST", "::1", "ODRADEK_CONTROL_HOST: there is no control port without"),
        ("ODRADEK_FAULTS", "EndTxn nth=2", "ODRADEK_FAULTS EndTxn nth=2: "),
        ("KAFKA_NUM_PARTITIONS", "many", "the variable KAFKA_NUM_PARTITIONS"),
    ],
)
def test_a_bad_value_of_a_variable_is_one_line_that_names_it(variable: str, value: str, message: str):
    with pytest.raises(click.ClickException) as error:
        parse([], {variable: value})
    assert message in error.value.format_message()
    assert "\n" not in error.value.format_message()
    assert error.value.exit_code == 2


def test_the_page_of_the_image_names_every_variable_of_the_start():
    page = (Path(__file__).parents[2] / "docs" / "container.md").read_text("utf-8")
    for variable in (*OF_THE_START, CREATE_TOPICS_VARIABLE):
        assert f"| `{variable}` |" in page, variable

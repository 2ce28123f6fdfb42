"""Broker settings: their sources, their precedence, which values are rejected and which only cause a warning."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from broker.config import BrokerConfig, ConfigError, ConfigSynonym, Endpoint, broker_config, load_config
from broker.config.definitions import EMULATOR_DEFAULTS, OWN_CONFIGS, broker_configs, kafka_configs
from broker.config.effects import EFFECTIVE
from broker.config.sources import OF_OTHERS, OF_THE_START, property_name, variable_name, without_services
from storage.config import TOPIC_CONFIGS
from storage.config_def import ConfigType, to_text

ROOT = Path(__file__).resolve().parents[3]
ATTRIBUTES = {field.name for field in fields(BrokerConfig)}
PYTHON_TYPES = {
    ConfigType.BOOLEAN: "bool",
    ConfigType.INT: "int",
    ConfigType.LONG: "int",
    ConfigType.SHORT: "int",
    ConfigType.DOUBLE: "float",
    ConfigType.STRING: "str",
    ConfigType.PASSWORD: "str",
    ConfigType.LIST: "tuple",
}


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    return tmp_path / "server.properties"


def warnings_of(environ: dict[str, str] | None = None, overrides: dict[str, str] | None = None) -> list[str]:
    return load_config(None, environ or {}, overrides or {})[1]


def services(*names: str, port: int = 9092) -> dict[str, str]:
    """Environment variables that Kubernetes sets in a pod for Services with these names."""
    environ: dict[str, str] = {}
    for name in names:
        prefix, url = name.upper().replace("-", "_"), f"tcp://10.96.0.1:{port}"
        at_port = f"{prefix}_PORT_{port}_TCP"
        environ |= {
            f"{prefix}_SERVICE_HOST": "10.96.0.1",
            f"{prefix}_SERVICE_PORT": str(port),
            f"{prefix}_SERVICE_PORT_CONTROL_PLAIN": str(port),
            f"{prefix}_PORT": url,
            at_port: url,
            f"{at_port}_PROTO": "tcp",
            f"{at_port}_PORT": str(port),
            f"{at_port}_ADDR": "10.96.0.1",
        }
    return environ


SERVICES = ("odradek", "odradek-control", "kafka", "kafka-headless", "kafka-0-external", "kafka-num")


# The table of settings


def test_every_broker_setting_of_kafka_is_known():
    assert len(kafka_configs()) == 379
    assert set(EFFECTIVE) <= set(kafka_configs())
    assert set(EMULATOR_DEFAULTS) <= set(kafka_configs())


def test_every_synonym_of_a_topic_setting_is_a_broker_setting():
    assert {synonym for key in TOPIC_CONFIGS.values() for synonym in key.synonyms} <= set(kafka_configs())


@pytest.mark.parametrize("key", broker_configs().values(), ids=lambda key: key.name)
def test_every_default_passes_its_own_check(key):
    if key.default is not None:
        assert key.parse(key.text(key.default)) == key.default


def test_the_attributes_have_the_types_of_the_table():
    computed = {
        "listeners",
        "advertised_listeners",
        "inter_broker_listener_name",
        "log_dir",
        "log_defaults",
        "cluster_id",
        "values",
        "static",
    }
    for field in fields(BrokerConfig):
        if field.name in computed:
            continue
        key = (
            broker_configs().get(field.name.replace("_", "."))
            or OWN_CONFIGS["odradek." + field.name.replace("_", ".")]
        )
        annotation = field.type.removesuffix(" | None") if isinstance(field.type, str) else field.type
        name = getattr(annotation, "__name__", str(annotation).removesuffix(" | None"))
        assert name == PYTHON_TYPES[key.config_type], field.name


# Settings that the documentation marks as effective

NAMED_IN_PARTS = frozenset(
    {
        "principal.builder.class",
        "security.inter.broker.protocol",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    }
)
"""Settings whose full names are not in the source that ``readers`` returns: modules of ``broker.config`` read these
settings, or their names are built from a prefix."""


def readers() -> str:
    """The concatenated source of all modules that may read a setting. Modules that only define settings or pass
    them on are left out."""
    paths = [
        path for package in ("broker", "lab", "server", "storage") for path in Path(package).rglob("*.py")
    ]
    carriers = re.compile(r"broker/config/\w+\.py|storage/(config\w*|topic_configs)\.py")
    return "\n".join(path.read_text("utf-8") for path in paths if not carriers.fullmatch(path.as_posix()))


def test_the_settings_page_says_truly_which_topic_settings_have_an_effect(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    text = readers()
    for key in TOPIC_CONFIGS.values():
        assert bool(re.search(rf"config\.{key.attribute}\b", text)) == key.effective, key.name


def test_the_settings_page_says_truly_which_broker_settings_have_an_effect(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    text = readers()
    # The module that makes the configuration reads these settings.
    read_there = {
        "broker.id",
        "controller.listener.names",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
    }
    # The bounds of the groups' settings are looked up by a computed name.
    read_there |= {
        name for name in EFFECTIVE if re.match(r"group\.(consumer|share)\.(min|max)\..*\.\w+$", name)
    }
    # Settings of listeners are also looked up by computed names.
    of_listeners = ("ssl.", "sasl.", "security.", "connections.max.reauth.ms", "principal.builder.class")
    for name in (each for each in kafka_configs() if each.startswith(of_listeners)):
        assert name not in EFFECTIVE or name in NAMED_IN_PARTS or f'"{name}"' in text, name
        read_there.add(name)
    of_topics = {synonym for key in TOPIC_CONFIGS.values() for synonym in key.synonyms}
    alias = {"log.dirs": "log_dir"}
    for name in set(kafka_configs()) - read_there - of_topics:
        read = bool(re.search(rf"\.{alias.get(name) or name.replace('.', '_')}\b", text))
        assert (read and name.replace(".", "_") in {*ATTRIBUTES, "log_dirs"}) == (name in EFFECTIVE), name


# Defaults


def test_the_defaults_are_those_of_the_single_node_image():
    config = broker_config()
    assert config.offsets_topic_replication_factor == 1
    assert (config.transaction_state_log_replication_factor, config.transaction_state_log_min_isr) == (1, 1)
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.node_id == config.broker_id == 1
    assert (config.transaction_state_log_num_partitions, config.offsets_topic_num_partitions) == (50, 50)


def test_one_setting_brings_back_kafka_s_own_defaults():
    config = broker_config({"odradek.defaults": "kafka"})
    assert config.offsets_topic_replication_factor == 3
    assert (config.transaction_state_log_replication_factor, config.transaction_state_log_min_isr) == (3, 2)
    assert config.group_initial_rebalance_delay_ms == 3000
    assert config.node_id == 1


def test_internal_topics_never_ask_for_more_replicas_than_there_are_nodes():
    settings = {"offsets.topic.replication.factor": "3", "transaction.state.log.min.isr": "2"}
    config = broker_config(settings)
    assert (config.offsets_topic_replication_factor, config.transaction_state_log_min_isr) == (1, 1)
    assert config.synonyms("offsets.topic.replication.factor")[0].value == "1"
    config, _ = load_config(None, {}, settings, nodes=3)
    assert (config.offsets_topic_replication_factor, config.transaction_state_log_min_isr) == (3, 2)
    config = broker_config({**settings, "odradek.defaults": "kafka"})
    assert (config.offsets_topic_replication_factor, config.transaction_state_log_min_isr) == (3, 2)


@pytest.mark.parametrize(("nodes", "factor", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_a_cluster_replicates_its_topics_and_goes_on_without_one_node(nodes: int, factor: int, min_isr: int):
    config, _ = load_config(None, {}, {}, nodes=nodes)
    assert config.default_replication_factor == factor
    assert (
        config.offsets_topic_replication_factor == config.transaction_state_log_replication_factor == factor
    )
    assert config.transaction_state_log_min_isr == min_isr
    assert config.log_defaults.min_insync_replicas == 1


def test_what_is_set_wins_over_the_size_of_the_cluster():
    settings = {"default.replication.factor": "1", "transaction.state.log.min.isr": "2"}
    config, _ = load_config(None, {}, settings, nodes=2)
    assert (config.default_replication_factor, config.transaction_state_log_min_isr) == (1, 2)
    config, _ = load_config(None, {}, {"odradek.defaults": "kafka"}, nodes=3)
    assert config.default_replication_factor == 1


def test_a_user_topic_s_replication_factor_is_left_as_it_was_set():
    assert broker_config({"default.replication.factor": "3"}).default_replication_factor == 3


# Sources


def test_variables_win_over_the_file_and_flags_over_variables(properties: Path):
    properties.write_text("num.partitions=2\nlog.segment.bytes=2000000\nqueued.max.requests=7\n")
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_SEGMENT_BYTES": "3000000"}
    config, warnings = load_config(properties, environ, {"num.partitions": "4"})
    assert (config.num_partitions, config.log_defaults.segment_bytes) == (4, 3_000_000)
    assert config.get("queued.max.requests") == 7
    assert warnings == []


def test_a_file_is_read_as_java_reads_it(properties: Path):
    properties.write_bytes(
        b"# comment\n! also a comment\n  num.partitions : 5 \nbroker.rack=caf\\u00e9 \\\n   au lait\xe9\nlog.roll.ms 10\n"
    )
    config, _ = load_config(properties, {}, {})
    assert (config.num_partitions, config.log_defaults.segment_ms) == (5, 10)
    assert config.broker_rack == "café au laité"


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(properties: Path):
    with pytest.raises(
        ConfigError, match=r"Cannot read the configuration file .*server\.properties: No such file"
    ):
        load_config(properties, {}, {})
    properties.write_text("broker.rack=\\uzzzz\n")
    with pytest.raises(ConfigError, match=r"Cannot read the configuration file .*server\.properties"):
        load_config(properties, {}, {})


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("LOG_DIRS", "log.dirs"),
        ("AUTO_CREATE_TOPICS_ENABLE", "auto.create.topics.enable"),
        ("LISTENER_NAME_MY__LISTENER_SSL_KEY_PASSWORD", "listener.name.my_listener.ssl.key.password"),
        ("LISTENER_NAME_MY___LISTENER_SSL_KEY_PASSWORD", "listener.name.my-listener.ssl.key.password"),
    ],
)
def test_variables_are_named_as_in_the_apache_kafka_image(variable: str, name: str):
    assert property_name(variable) == name
    assert variable_name(name) == f"KAFKA_{variable}"


def test_variables_that_are_no_settings_are_ignored_without_a_warning():
    environ = dict.fromkeys(
        (
            "KAFKA_OPTS",
            "KAFKA_HEAP_OPTS",
            "KAFKA_JMX_OPTS",
            "KAFKA_JMX_PORT",
            "KAFKA_JVM_PERFORMANCE_OPTS",
            "KAFKA_LOG4J_ROOT_LOGLEVEL",
            "KAFKA_LOG4J_LOGGERS",
            "KAFKA_TOOLS_LOG4J_LOGLEVEL",
            "KAFKA_SSL_KEYSTORE_FILENAME",
            "KAFKA_SSL_KEY_CREDENTIALS",
            "KAFKA_BOOTSTRAP_SERVERS",
            "KAFKA_PORT_9092_TCP_ADDR",
            "KAFKA_SERVICE_HOST",
            "KAFKA_ZOOKEEPER_CONNECT",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE",
            *OF_OTHERS,
            *OF_THE_START,
            "PATH",
        ),
        "anything",
    )
    assert warnings_of(environ) == []


def test_every_variable_that_odradek_reads_is_a_setting_or_passed_over():
    sources = ROOT.joinpath("odradek").rglob("*.py")
    read = {name for each in sources for name in re.findall(r'"(ODRADEK_[A-Z_]+)"', each.read_text("utf-8"))}
    read.add("ODRADEK_PURE")  # read by the compiled core
    assert read >= OF_OTHERS
    assert {property_name(name) for name in read - OF_OTHERS - OF_THE_START} <= set(OWN_CONFIGS)


@pytest.mark.parametrize("variable", ["CLUSTER_ID", "KAFKA_CLUSTER_ID", "ODRADEK_CLUSTER_ID"])
def test_the_cluster_id_can_be_set_by_a_variable(variable: str):
    config, warnings = load_config(None, {variable: "5L6g3nShT-eMCtK--X86sw"}, {})
    assert config.cluster_id == "5L6g3nShT-eMCtK--X86sw"
    assert warnings == []
    assert broker_config().cluster_id is None


def test_our_own_settings_can_be_set_by_variables():
    config, _ = load_config(None, {"ODRADEK_COMMIT_ORDER": "kafka", "ODRADEK_CRASH_POINTS": "a:3"}, {})
    assert (config.commit_order, config.crash_points, config.commit_marker_delay_ms) == ("kafka", "a:3", 0)


# Rejected and unknown settings


def test_a_bad_value_is_an_error_that_names_property_value_and_source(properties: Path):
    message = "Invalid value many for configuration num.partitions: Not a number of type INT"
    with pytest.raises(ConfigError) as by_variable:
        load_config(None, {"KAFKA_NUM_PARTITIONS": "many"}, {})
    assert str(by_variable.value) == f"{message} (from the variable KAFKA_NUM_PARTITIONS)"
    properties.write_text("num.partitions=many")
    with pytest.raises(ConfigError) as by_file:
        load_config(properties, {}, {})
    assert str(by_file.value) == f"{message} (from the file {properties})"
    with pytest.raises(ConfigError) as by_flag:
        load_config(None, {}, {"num.partitions": "many"})
    assert str(by_flag.value) == f"{message} (from the command line)"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.network.threads", "0"),
        ("ssl.client.auth", "perhaps"),
        ("log.message.timestamp.type", "createtime"),
        ("odradek.commit.order", "random"),
        ("odradek.log.level", "loud"),
        ("process.roles", "king"),
    ],
)
def test_a_bad_value_is_an_error_even_where_the_setting_has_no_effect(name: str, value: str):
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        broker_config({name: value})


def test_an_unknown_setting_of_the_command_line_is_an_error():
    with pytest.raises(ConfigError, match=r"num\.partition .*did you mean num\.partitions"):
        broker_config({"num.partition": "3"})


@pytest.mark.parametrize(
    "name",
    ["alter.config.policy.class.name", "create.topic.policy.class.name", "max.connection.creation.rate"],
)
def test_a_setting_that_a_user_would_rely_on_and_that_has_no_effect_is_one_warning(name: str):
    value = "5" if name.endswith("rate") else "org.example.Ours"
    [warning] = warnings_of({}, {name: value})
    assert warning.startswith(f"{name} (from the command line) has no effect: ")
    default = kafka_configs()[name].default
    assert warnings_of({}, {name: to_text(default) or ""}) == []


def test_an_unknown_setting_of_a_variable_is_one_warning_with_the_nearest_name():
    assert warnings_of({"KAFKA_NUM_PARTITION": "3"}) == [
        "unknown property num.partition (from the variable KAFKA_NUM_PARTITION) has no effect; "
        "did you mean KAFKA_NUM_PARTITIONS?"
    ]


def test_an_unknown_setting_of_ours_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"odradek\.comit\.order .*did you mean odradek\.commit\.order"):
        broker_config({"odradek.comit.order": "kafka"})
    file = tmp_path / "server.properties"
    file.write_text("odradek.comit.order=kafka\n")
    with pytest.raises(ConfigError, match=r"did you mean odradek\.commit\.order"):
        load_config(file, {}, {})


def test_an_unknown_variable_of_ours_is_one_warning_with_the_nearest_name():
    """An unknown variable causes one warning and no failure, as other programs use variables with the prefix ODRADEK_
    too."""
    assert warnings_of({"ODRADEK_PYTHON": "3.11", "ODRADEK_TOPIC": "a"}) == [
        "unknown property odradek.python (from the variable ODRADEK_PYTHON) has no effect",
        "unknown property odradek.topic (from the variable ODRADEK_TOPIC) has no effect; did you mean ODRADEK_TOPICS?",
    ]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ODRADEK_CONTROL_TOKN", "ODRADEK_CONTROL_TOKEN"),
        ("ODRADEK_CONTROLTOKEN", "ODRADEK_CONTROL_TOKEN"),
        ("ODRADEK_CONTROL_TOKEN_LOOKS", "ODRADEK_CONTROL_TOKEN_LOOK"),
        ("ODRADEK_CONTROL_ALLOWED_HOST", "ODRADEK_CONTROL_ALLOWED_HOSTS"),
        ("ODRADEK_CNTROL_TOKEN", "ODRADEK_CONTROL_TOKEN"),
        ("ODRADEK_CONTROL_PASSWORD", ""),
        ("ODRADEK_SASLS", "ODRADEK_SASL"),
        ("ODRADEK_SASL_USERS", ""),
        ("ODRADEK_SASL_ENABLED_MECHANISMS", "KAFKA_SASL_ENABLED_MECHANISMS"),
        ("ODRADEK_AUTHORIZER_CLASS_NAME", "KAFKA_AUTHORIZER_CLASS_NAME"),
        ("ODRADEK_TLS", ""),
        ("ODRADEK_TOKEN", ""),
        ("ODRADEK_SSL_CLIENT_AUTH", "KAFKA_SSL_CLIENT_AUTH"),
    ],
)
def test_a_misspelt_variable_that_was_to_close_something_is_an_error(variable: str, meant: str):
    with pytest.raises(ConfigError) as refused:
        load_config(None, {variable: "secret"}, {})
    assert str(refused.value).startswith(
        f"Unknown property {property_name(variable)} (from the variable {variable})"
    )
    assert ("did you mean" in str(refused.value)) == bool(meant)
    assert f"did you mean {meant}?" in str(refused.value) or not meant
    assert "a security setting" in str(refused.value)
    assert "secret" not in str(refused.value)
    # Docker Compose passes variables that are not set as empty strings.
    assert len(warnings_of({variable: ""})) == 1


@pytest.mark.parametrize(
    "variable", ["ODRADEK_PYPI_TOKEN", "ODRADEK_TEST_SSL", "KAFKA_SASL_ENABLED_MECHANISM"]
)
def test_a_variable_of_another_program_is_a_warning_whatever_it_holds(variable: str):
    assert len(warnings_of({variable: "secret"})) == 1


def test_variables_of_a_kubernetes_service_of_our_name_are_no_settings():
    variables = ("PORT_9092_TCP", "PORT_9092_TCP_ADDR", "SERVICE_HOST", "SERVICE_PORT_KAFKA")
    assert warnings_of({f"ODRADEK_{name}": "tcp://10.0.0.1:9092" for name in (*variables, "PORT")}) == []
    assert warnings_of({f"ODRADEK_CONTROL_{name}": "tcp://10.0.0.1:9092" for name in variables}) == []


@pytest.mark.parametrize(
    "name",
    [
        "super.users",
        "listener.name.internal.ssl.keystore.location",
        "listener.name.internal.plain.sasl.jaas.config",
        "config.providers.file.class",
        "metadata.log.dir",
        "unclean.leader.election.interval.ms",
    ],
)
def test_settings_of_kafka_without_effect_here_are_accepted(name: str):
    assert warnings_of({}, {name: "1"}) == []


def test_node_id_and_broker_id_are_one_thing():
    assert broker_config({"broker.id": "7"}).node_id == 7
    assert broker_config({"node.id": "7"}).get("broker.id") == 7
    with pytest.raises(ConfigError, match="same value"):
        broker_config({"node.id": "7", "broker.id": "8"})
    with pytest.raises(ConfigError, match=r"node\.id: Value must be at least 0"):
        broker_config({"broker.id": "-1"})


# Listeners


def test_by_default_the_broker_listens_on_this_machine_only():
    config = broker_config()
    assert config.listeners == config.advertised_listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_wildcard_address_is_advertised_as_localhost(host: str):
    config = broker_config({"listeners": f"PLAINTEXT://{host}:9092"})
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "localhost", 9092),)
    assert config.listeners[0].host == host.strip("[]")


def test_advertised_listeners_alone_are_listened_to_everywhere():
    config, _ = load_config(None, {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka.test:29092"}, {})
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "kafka.test", 29092),)
    assert config.listeners == (Endpoint("PLAINTEXT", "0.0.0.0", 29092),)


def test_advertised_listeners_by_variable_win_over_the_listeners_of_the_file(properties: Path):
    properties.write_text("listeners=PLAINTEXT://:9092\n")
    config, _ = load_config(
        properties,
        {"KAFKA_ADVERTISED_LISTENERS": "OUT://h:1,PLAINTEXT://h:2"},
        {"listener.security.protocol.map": "OUT:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
    )
    assert [str(each) for each in config.listeners] == ["OUT://0.0.0.0:1", "PLAINTEXT://0.0.0.0:2"]


def test_listeners_by_flag_stay_when_the_advertised_ones_come_by_variable():
    environ = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://h:29092"}
    config, _ = load_config(None, environ, {"listeners": "PLAINTEXT://127.0.0.1:0"})
    assert (config.listeners[0].port, config.advertised_listeners[0].port) == (0, 29092)


def test_the_settings_of_the_testcontainers_modules_start_a_broker():
    config, warnings = load_config(
        None,
        {
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://f00:9093",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_NODE_ID": "1",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        },
        {},
    )
    assert warnings == []
    assert [str(each) for each in config.listeners] == ["PLAINTEXT://0.0.0.0:9092", "BROKER://0.0.0.0:9093"]
    assert [str(each) for each in config.advertised_listeners] == [
        "PLAINTEXT://localhost:32768",
        "BROKER://f00:9093",
    ]
    assert (config.inter_broker_listener_name, config.offsets_topic_num_partitions) == ("BROKER", 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"principal.builder.class": "com.example.Builder"},
            "Invalid value com.example.Builder for configuration principal.builder.class",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "inter.broker.listener.name must be a listener name defined in listeners, not SSL",
        ),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set",
        ),
        ({"listeners": "MINE://:9092"}, "No security protocol defined for listener MINE"),
        ({"listeners": "localhost:9092"}, "Unable to parse localhost:9092 to a broker endpoint"),
        ({"listeners": "PLAINTEXT://:70000"}, "the port must be from 0 to 65535"),
        ({"listeners": "CONTROLLER://:9093"}, "There must be at least one broker listener"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "Each listener must have a different name"),
        (
            {
                "listeners": "PLAINTEXT://:1,A://:1",
                "listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "Each listener must have a different port",
        ),
        ({"listener.security.protocol.map": "A:TELEX"}, "expected NAME:PROTOCOL"),
        (
            {"listeners": "PLAINTEXT://:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            "nonroutable meta-address",
        ),
        (
            {
                "listeners": "PLAINTEXT://:1",
                "advertised.listeners": "A://h:1",
                "listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "listener names must be equal to or a subset of the ones defined in listeners",
        ),
        ({"inter.broker.listener.name": "UNKNOWN"}, "inter.broker.listener.name must be a listener name"),
    ],
)
def test_listeners_that_cannot_be_are_refused_with_a_reason(settings: dict[str, str], message: str):
    with pytest.raises(ConfigError) as refused:
        broker_config(settings)
    assert message in str(refused.value)


# Defaults of topics


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_the_setting_with_the_smallest_unit_of_retention_wins(settings: dict[str, str], retention_ms: int):
    assert broker_config(settings).log_defaults.retention_ms == retention_ms


def test_a_retention_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"log\.retention\.ms must be unlimited"):
        broker_config({"log.retention.ms": "0"})


def test_the_topic_defaults_follow_the_broker_s_settings():
    settings = {
        "log.roll.hours": "1",
        "log.roll.jitter.ms": "5",
        "log.flush.scheduler.interval.ms": "77",
        "message.max.bytes": "1000",
        "log.cleanup.policy": "compact",
    }
    defaults = broker_config(settings).log_defaults
    assert (defaults.segment_ms, defaults.segment_jitter_ms, defaults.flush_ms) == (3_600_000, 5, 77)
    assert (defaults.max_message_bytes, defaults.cleanup_policy) == (1000, ("compact",))


def test_describe_configs_learns_value_source_and_synonyms_as_from_kafka():
    """``topic_default`` returns a topic setting's default, source and synonyms as DescribeConfigs of Kafka does.
    In Kafka ``log.retention.hours`` hides every other synonym of ``retention.ms``."""
    config = broker_config({"log.retention.hours": "24", "log.segment.bytes": "2097152"})
    assert config.topic_default("retention.ms") == ("86400000", "DEFAULT_CONFIG", ())
    assert config.topic_default("flush.ms") == ("9223372036854775807", "DEFAULT_CONFIG", ())
    assert config.topic_default("segment.bytes") == (
        "2097152",
        "STATIC_BROKER_CONFIG",
        (
            ConfigSynonym("log.segment.bytes", "2097152", "STATIC_BROKER_CONFIG"),
            ConfigSynonym("log.segment.bytes", "1073741824", "DEFAULT_CONFIG"),
        ),
    )
    assert config.topic_default("leader.replication.throttled.replicas") == ("", "DEFAULT_CONFIG", ())


def test_variables_of_a_service_of_kubernetes_are_none_of_the_broker_s():
    environ = {**services(*SERVICES), "KAFKA_NUM_PARTITIONS": "4"}
    assert without_services(environ) == {"KAFKA_NUM_PARTITIONS": "4"}
    config, warnings = load_config(None, environ, {})
    assert (config.num_partitions, warnings) == (4, [])


def test_a_port_of_the_pod_s_own_stays_beside_a_service():
    """Only the variables of a Service are removed. Similar variables that the pod sets itself stay: ``_PORT`` with
    a value that is not a URL, and longer names."""
    own = {"ODRADEK_CONTROL_PORT": "18092", "KAFKA_NUM_PORT": "x", "KAFKA_PORT_X": "y"}
    assert without_services({**services(*SERVICES), **own}) == own


def test_without_a_service_host_no_variable_is_a_service_s():
    environ = {"ODRADEK_CONTROL_PORT": "tcp://10.96.0.1:1", "KAFKA_HEADLESS_SERVICE_PORT": "1"}
    assert without_services(environ) == environ
    assert warnings_of({"KAFKA_HEADLESS_SERVICE_PORT": "1"})


def test_what_a_start_begins_with_stands_below_everything(properties: Path):
    defaults = {"log.dirs": "/data", "listeners": "PLAINTEXT://0.0.0.0:9092", "num.partitions": "2"}
    config, warnings = load_config(None, {}, {}, defaults=defaults)
    assert (str(config.log_dir), config.num_partitions, warnings) == ("/data", 2, [])
    properties.write_text("num.partitions=3\n")
    config, _ = load_config(properties, {}, {}, defaults=defaults)
    assert (str(config.log_dir), config.num_partitions) == ("/data", 3)
    assert str(config.listeners[0]) == "PLAINTEXT://0.0.0.0:9092"
    properties.write_text("log.dirs=/other\nadvertised.listeners=PLAINTEXT://h:9095\n")
    config, _ = load_config(properties, {"KAFKA_NUM_PARTITIONS": "5"}, {}, defaults=defaults)
    assert (str(config.log_dir), config.num_partitions) == ("/other", 5)
    assert str(config.listeners[0]) == "PLAINTEXT://0.0.0.0:9095"


def test_a_log_dir_of_the_user_s_wins_over_the_log_dirs_that_a_start_begins_with():
    config, _ = load_config(None, {"KAFKA_LOG_DIR": "/mine"}, {}, defaults={"log.dirs": "/data"})
    assert config.log_dir == Path("/mine")


def test_log_dirs_win_over_log_dir_and_only_the_first_is_used():
    assert broker_config().log_dir is None
    assert broker_config({"log.dir": "/a"}).log_dir == Path("/a")
    config, warnings = load_config(None, {"KAFKA_LOG_DIRS": "/b,/c"}, {"log.dir": "/a"})
    assert config.log_dir == Path("/b")
    assert warnings == [
        "log.dirs (from the variable KAFKA_LOG_DIRS) names several directories: only /b is used"
    ]

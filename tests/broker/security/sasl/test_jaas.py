"""JAAS configurations: their syntax, login modules and error messages, as in Java (recorded from 4.3.1)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.sasl.jaas import (
    JaasFile,
    Jvm,
    LoginModule,
    parse_config,
    parse_file,
    read_jvm,
    server_context,
)
from broker.security.sasl.stream_tokenizer import tokens
from storage.config_def import ConfigError
from tests.broker.security.sasl.world import NO_JVM, PLAIN_MODULE, listener


def options(text: str) -> dict[str, str]:
    (module,) = parse_config(f"a.Module required {text};")
    return dict(module.options)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_config(text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ('user_alice="secret" user_bob=other', {"user_alice": "secret", "user_bob": "other"}),
        ("k='single \"quoted\"'", {"k": 'single "quoted"'}),
        (r'k="a\"b\\c\td\n"', {"k": 'a"b\\c\td\n'}),
        (r'k="\101\7z\400\x"', {"k": "A\x07z 0x"}),
        ('"quoted key"="v"', {"quoted key": "v"}),
        ("k=a-b_c$d.e9", {"k": "a-b_c$d.e9"}),
        ('k = "v" // why\n l="w"', {"k": "v", "l": "w"}),
        ('k=/* not "this" */"v"', {"k": "v"}),
        ("k=ü日本", {"k": "ü日本"}),
        ('k="first" k="last"', {"k": "last"}),
        ('k=""', {"k": ""}),
        ('k="a;b=c"', {"k": "a;b=c"}),
        ('/ a slash alone is a comment\nk="v"', {"k": "v"}),
        ('k="never closed\n', {"k": "never closed"}),
        ("k=12", None),
        ("k=-x", None),
        ("k=\x85", None),
    ],
)
def test_options_are_cut_as_by_a_stream_tokenizer(text: str, expected: dict[str, str] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError):
            options(text)
    else:
        assert options(text) == expected


def test_a_quotation_ends_with_its_line() -> None:
    assert [token.text for token in tokens('"a\nb "c\\', "")] == ["a", "b", "c\uffff", None]


def test_several_modules_have_names_flags_and_options() -> None:
    text = 'a.B Required; c.D SUFFICIENT k="v"; e optional x=y ;'
    assert parse_config(text) == (
        LoginModule("a.B", "REQUIRED", {}),
        LoginModule("c.D", "SUFFICIENT", {"k": "v"}),
        LoginModule("e", "OPTIONAL", {"x": "y"}),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Login module not specified in JAAS config"),
        (" // nothing", "Login module not specified in JAAS config"),
        ("a.B", "Login module control flag not specified in JAAS config"),
        ("a.B ;", "Login module control flag is not available in the JAAS config"),
        ("a.B requird;", "Invalid login module control flag 'requird' in JAAS config"),
        ("a.B required; secret part;", "Invalid login module control flag '[hidden]' in JAAS config"),
        ("a.B required", "JAAS config entry not terminated by semi-colon"),
        ('a.B required username="x"', "JAAS config entry not terminated by semi-colon"),
        ("a.B required username;", "Value not specified for key 'username' in JAAS config"),
        ("a.B required username=", "Value not specified for key 'username' in JAAS config"),
        ("a.B required user_x=;", "Value not specified for key '[hidden]' in JAAS config"),
        ("a.B required password=a@b;", "Value not specified for key 'null' in JAAS config"),
        ('a.B required password="se"cret";', "Value not specified for key '[hidden]' in JAAS config"),
    ],
)
def test_refusals_have_kafkas_texts(text: str, told: str) -> None:
    assert refusal(text) == told


@given(st.dictionaries(st.sampled_from(["a", "user_b", "C.d", "e-f"]), st.text(max_size=10)))
def test_whatever_is_quoted_comes_back(values: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return "".join(f"\\{ord(each):03o}" if each in '"\\\n\r' else each for each in value)

    assert options(" ".join(f'{key}="{quoted(value)}"' for key, value in values.items())) == values


@given(st.text(alphabet=st.sampled_from("aB1.-_$ =;\"'\\/*\n{}#é\x00"), max_size=40))
def test_any_text_is_modules_or_a_refusal(text: str) -> None:
    for parse in (parse_config, lambda text: parse_file(text, {})):
        with contextlib.suppress(ConfigError):
            parse(text)


FILE = """
KafkaServer {
   org.apache.kafka.common.security.plain.PlainLoginModule required
   user_alice="alice-secret"
   path="${home}${/}x";
   other.Module optional;
};
sasl.KafkaServer { a.B required; };
Empty { };
"""


def test_a_file_has_sections_of_modules() -> None:
    contexts = parse_file(FILE, {"home": "/srv"})
    assert list(contexts) == ["KafkaServer", "sasl.KafkaServer"]
    plain, other = contexts["KafkaServer"]
    assert plain == LoginModule(PLAIN_MODULE, "REQUIRED", {"user_alice": "alice-secret", "path": "/srv/x"})
    assert other == LoginModule("other.Module", "OPTIONAL", {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("KafkaServer {", "expected [module class name], read [end of file]"),
        ("KafkaServer { a.B", "expected [controlFlag], read [end of file]"),
        ("KafkaServer {\n a.B required\n}", "Line 3: expected [option key]"),
        ("KafkaServer { a.B required secret; };", "Line 1: expected [=]"),
        ("KafkaServer { a.B required k=1; };", "Line 1: expected [option value]"),
        ("KafkaServer { a.B nonsense; };", "Line 1: Invalid control flag, [hidden]"),
        ("KafkaServer { a.B required; }", "expected [;], read [end of file]"),
        ("KafkaServer a.B", "Line 1: expected [{]"),
        ("K { a.B required; }; K { };", "Can not specify multiple entries for K"),
    ],
)
def test_a_file_that_java_refuses_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_file(text, {})
    assert str(refused.value) == f"Configuration Error: {told}"


def test_a_property_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigError, match="property nowhere"):
        parse_file('K { a.B required k="${nowhere}"; };', {})


def jvm(*sections: str) -> Jvm:
    return Jvm({}, JaasFile("/jaas", {name: (LoginModule(name, "REQUIRED", {}),) for name in sections}))


def test_the_listeners_setting_wins_over_the_file() -> None:
    configs = listener(plain_sasl_jaas_config="own.Module required;")
    context = server_context(configs, "PLAIN", jvm("KafkaServer", "sasl.KafkaServer"))
    assert [each.name for each in context.modules] == ["own.Module"]


@pytest.mark.parametrize(
    ("sections", "chosen"),
    [
        (("KafkaServer",), "KafkaServer"),
        (("sasl.KafkaServer",), "sasl.KafkaServer"),
        (("KafkaServer", "sasl.KafkaServer"), "sasl.KafkaServer"),
    ],
)
def test_a_section_of_the_listener_wins_over_that_of_the_broker(
    sections: tuple[str, ...], chosen: str
) -> None:
    assert server_context(listener(), "PLAIN", jvm(*sections)).name == chosen


@pytest.mark.parametrize(("given_jvm", "path"), [(NO_JVM, "not set"), (jvm("Client"), "/jaas")])
def test_without_modules_the_text_is_kafkas(given_jvm: Jvm, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server_context(listener(scram__sha__256_sasl_jaas_config="a.B required;"), "PLAIN", given_jvm)
    assert str(refused.value) == (
        "Could not find a 'KafkaServer' or 'sasl.KafkaServer' entry in the JAAS configuration. "
        f"System property 'java.security.auth.login.config' is {path}"
    )


def test_a_setting_has_one_module() -> None:
    with pytest.raises(
        ConfigError, match="JAAS config property contains 2 login modules, should be 1 module"
    ):
        server_context(listener(plain_sasl_jaas_config="a required; b required;"), "PLAIN", NO_JVM)


def test_the_first_module_of_the_name_that_has_the_option_counts() -> None:
    text = f'a.B required k="other"; {PLAIN_MODULE} required; {PLAIN_MODULE} required k="v"; {PLAIN_MODULE} required k="w";'
    file = JaasFile("/jaas", parse_file(f"KafkaServer {{ {text} }};", {}))
    context = server_context(listener(), "PLAIN", Jvm({}, file))
    assert context.option("k", PLAIN_MODULE) == "v"
    assert context.option("l", PLAIN_MODULE) is None


@pytest.mark.parametrize("form", ["{}", "={}", "file:{}"])
def test_kafka_opts_names_the_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text('KafkaServer { a.B required k="${who}"; };')
    options = f"-Xmx1g -Dwho=me -Djava.security.auth.login.config={form.format(path)}"
    found = read_jvm({"KAFKA_OPTS": options}).jaas_file
    assert found == JaasFile(str(path), {"KafkaServer": (LoginModule("a.B", "REQUIRED", {"k": "me"}),)})


def test_without_kafka_opts_there_is_no_file() -> None:
    assert read_jvm({}) == NO_JVM


def test_a_file_that_is_not_there_or_wrong_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    environ = {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"}
    with pytest.raises(ConfigError, match="No such file or directory"):
        read_jvm(environ)
    path.write_text("KafkaServer")
    with pytest.raises(ConfigError, match=r"jaas\.conf: Configuration Error: expected \[{\]"):
        read_jvm(environ)

"""`odradek._protocol`: in a user's process, such as a Spark executor, `import protocol` finds only the user's package."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.deadlines import TEST_S

ROOT = Path(__file__).resolve().parents[2]
# Imports all of `protocol` that a client of the sink loads, including codecs, which are loaded at their first use.
PROGRAM = """
import sys
from odradek._protocol.codec import client_codec
from odradek.spark.wire import Cluster, messages

APIS = [each for each in vars(messages).values() if isinstance(each, messages.Api)]
for api in APIS:
    for version in range(api.lowest, api.highest + 1):
        client_codec(api.key, version)
from odradek._protocol import codec, core
print(codec.__file__, core.CORE, len(APIS), [name for name in sys.modules if name.split(".")[0] == "protocol"])
import protocol
print(protocol.OWNER)
"""


def as_in_a_wheel() -> dict[str, Path]:
    """The source files that a user's process may import from a wheel of Odradek, by their paths in the wheel."""
    inside = {
        f"odradek/_server/protocol/{each.relative_to(ROOT / 'protocol')}": each
        for each in sources("protocol")
    }
    return inside | {str(each.relative_to(ROOT)): each for each in sources("odradek")}


def sources(package: str) -> list[Path]:
    return list((ROOT / package).rglob("*.py"))


def in_a_checkout(folder: Path) -> Path:
    return ROOT


def in_site_packages(folder: Path) -> Path:
    for name, source in as_in_a_wheel().items():
        (folder / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "site" / name).write_bytes(source.read_bytes())
    # In the folder that contains `odradek`, where a checkout has our own `protocol`.
    users_package(folder / "site")
    return folder / "site"


def in_a_zip_file(folder: Path) -> Path:
    """A zip file with Odradek's sources, as Spark executors get it by `--py-files`."""
    with ZipFile(folder / "odradek.zip", "w") as archive:
        for name, source in as_in_a_wheel().items():
            archive.write(source, name)
    return folder / "odradek.zip"


def users_package(folder: Path) -> Path:
    (folder / "protocol").mkdir(parents=True)
    (folder / "protocol" / "__init__.py").write_text("OWNER = 'user'\n")
    return folder


@pytest.mark.parametrize("place", [in_a_checkout, in_site_packages, in_a_zip_file])
def test_the_package_protocol_of_a_user_is_not_met(place, tmp_path: Path):
    ours, users = place(tmp_path), users_package(tmp_path / "users")
    libraries = [each for each in sys.path if each.endswith("-packages")]
    path = f"import sys; sys.path[:0] = {[str(users), str(ours)]}; sys.path += {libraries}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{path}\n{PROGRAM}"],
        capture_output=True,
        text=True,
        timeout=TEST_S,
    )
    assert done.returncode == 0, done.stderr
    where = ours / ("protocol" if ours == ROOT else "odradek/_server/protocol")
    assert done.stdout == f"{where / 'codec.py'} pure Python 14 []\nuser\n"


def test_both_names_in_one_process_do_not_mix():
    """`odradek._protocol` and `protocol` in one process have different classes and encode the same bytes.

    The compiled core knows only the classes of `protocol`.
    """
    from odradek._protocol.messages import end_txn as own_messages

    from odradek._protocol import codec as own_codec
    from protocol import codec
    from protocol.messages import end_txn

    assert own_messages.EndTxnRequest is not end_txn.EndTxnRequest
    assert own_codec.MalformedRequest is not codec.MalformedRequest
    bytes_of_both = [
        b"".join(
            codecs.client_codec(26, 3).encode(messages.EndTxnRequest(transactional_id="t", producer_id=7))
        )
        for codecs, messages in ((own_codec, own_messages), (codec, end_txn))
    ]
    assert bytes_of_both[0] == bytes_of_both[1]
    for codecs in (own_codec, codec):
        with pytest.raises(codecs.MalformedRequest):
            codecs.client_codec(26, 3).decode(b"\0", 0)

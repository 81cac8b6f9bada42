"""The users that a new cluster begins with: as Kafka's tool takes them, from a file of the driver's."""

from pathlib import Path
from uuid import uuid4

import pytest

from sparklog.driver.controller.initial_scram_users import InitialUsersError, read_initial_scram_users
from sparklog.driver.controller.machine.controller import Controller
from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.metadata.scram_records import scram_credential_of_record
from sparklog.node.security.sasl.scram import ScramCredential
from tests.unit.driver.controller.conversation import Conversation


def written(directory: Path, text: str) -> Path:
    path = directory / "users"
    path.write_text(text)
    return path


def test_users_are_read_as_kafkas_tool_takes_them(tmp_path: Path) -> None:
    """With a password, or with what somebody has made of it already."""
    salted = ScramCredential.of_password("SCRAM-SHA-256", "pencil", 4096, b"7q")
    records = read_initial_scram_users(
        written(
            tmp_path,
            "# the first\n\nSCRAM-SHA-512=[name=admin,password=a=b c]\n"
            'SCRAM-SHA-256=[name=ann,iterations=8192,salt="N3E=",saltedpassword="YCE="]\n'
            ' SCRAM-SHA-256=[name=bob,salt=N3E=,password="pencil"] \n',
        )
    )
    assert [(record.name, record.mechanism, record.iterations) for record in records] == [
        ("admin", 2, 4096),
        ("ann", 1, 8192),
        ("bob", 1, 4096),
    ]
    admin, ann, bob = map(scram_credential_of_record, records)
    assert admin == ScramCredential.of_password("SCRAM-SHA-512", "a=b c", 4096, admin.salt)
    assert ann == ScramCredential.of_salted_password("SCRAM-SHA-256", b"`!", 8192, b"7q")
    assert bob == salted


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("PLAIN=[name=ann,password=s3cret]", "expected: mechanism="),
        ("SCRAM-SHA-256=name=ann,password=s3cret", "expected: mechanism="),
        ("SCRAM-SHA-256=[password=s3cret]", "the name is missing"),
        ("SCRAM-SHA-256=[name=ann]", "a password is missing"),
        ("SCRAM-SHA-256=[name=ann,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=ann,password=s3cret,s3cret]", "no value can have a comma"),
        ("SCRAM-SHA-256=[name=ann,s3cret=x]", "a component is none of"),
        ("SCRAM-SHA-256=[name=ann,password=s3cret,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=ann,password=s3cret,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=ann,password=s3cret,iterations=many]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=ann,saltedpassword=YCE=]", "a saltedpassword with its salt"),
        ("SCRAM-SHA-256=[name=ann,salt=s3cret!,password=s3cret]", "the salt is not in base 64"),
        ("SCRAM-SHA-256=[name=bob,password=s3cret]", "has a password by this mechanism already"),
    ],
)
def test_malformed_line_is_named_and_shown_to_nobody(line: str, said: str, tmp_path: Path) -> None:
    """What is wrong ends up in logs."""
    path = written(tmp_path, f"SCRAM-SHA-256=[name=bob,password=x]\n{line}\n")
    with pytest.raises(InitialUsersError, match="users, line 2: ") as refused:
        read_initial_scram_users(path)
    assert said in str(refused.value) and "s3cret" not in str(refused.value)


def test_new_cluster_begins_with_its_users_and_another_driver_leaves_them_alone() -> None:
    """A password that was changed since must not be what it was at first."""
    credential = ScramCredential.of_password("SCRAM-SHA-256", "pencil", 4096)
    first = UserScramCredentialRecord(
        name="admin",
        mechanism=1,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=4096,
    )
    cluster = Conversation()
    assert first not in cluster.controller.bootstrap([first]).records
    new = Controller("new", cluster.config, uuid4, EMPTY_IMAGE)
    assert first in new.bootstrap([first]).records

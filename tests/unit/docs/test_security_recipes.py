"""The recipes of docs/security.md, as they stand there but for hosts and directories."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparklog.driver.controller.initial_scram_users import read_initial_scram_users
from sparklog.driver.spark import open_network
from sparklog.node.acls.acl import Principal
from sparklog.node.config import BrokerConfig, read_properties
from sparklog.node.config.listener_security.listener_sasl import listener_authentication
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.config.listener_security.session_access import session_access
from sparklog.node.metadata.scram_records import SCRAM_MECHANISMS, scram_credential_of_record
from sparklog.node.security.application_secret import SESSION, ApplicationSecret
from sparklog.node.security.sasl.scram import ScramCredential
from sparklog.node.security.session_access import SessionAccess
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.requests import Api, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import KafkaError
from sparklog.user.client.connecting import connected
from sparklog.user.dataframe.application_cluster import ApplicationAddress
from sparklog.user.dataframe.kafka_options import KafkaOptions
from tests.certificates import Authority
from tests.unit.driver.spark.java_virtual_machine import context_of
from tests.unit.sparklog.node.serving.serving import heartbeat, heartbeat_response, run, serving

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
SECRET = ApplicationSecret.new()
ADMIN = Principal("User", "admin")
SECRETS_OF_STORES = (
    *("access_key_id", "aws_access_key_id", "secret_access_key", "session_token", "sse_customer_key_base64"),
    *("service_account", "service_account_key", "account_key", "azure_storage_master_key", "sas_key"),
)


class Recipe(NamedTuple):
    """What a recipe's blocks say."""

    cluster: BrokerConfig
    client: dict[str, str]


def section(title: str, level: str = "###") -> str:
    found = re.search(rf"^{level} {title}\n(.*?)(?=^##)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def recipe(title: str, directory: Path) -> Recipe:
    """Return a recipe whose files are in a directory, and whose hosts are this one."""
    cluster, client = (_here(block, directory) for block in blocks(section(title), "properties"))
    config = BrokerConfig.from_mapping(cluster)
    open_network.check_listeners(config)
    loopback = {"controller.quorum.bootstrap.servers": "127.0.0.1:0"}
    loopback["listeners"] = cluster["listeners"].replace("0.0.0.0:9093", "127.0.0.1:0")
    return Recipe(BrokerConfig.from_mapping(cluster | loopback), client)


def _here(block: str, directory: Path) -> dict[str, str]:
    path = directory / "recipe.properties"
    path.write_text(re.sub(r"/(etc/sparklog|etc/kafka|home/me)/", f"{directory}/", block))
    return read_properties(path)


@asynccontextmanager
async def listening(
    config: BrokerConfig, listener_name: str, users: Mapping[tuple[str, str], ScramCredential]
) -> AsyncIterator[tuple[int, list[Principal]]]:
    """Give a listener's port, on loopback, and who was heard there."""
    heard: list[Principal] = []
    own_addresses: set[str] = set()

    def answer(request: Request) -> Any:
        heard.append(request.principal)
        return heartbeat_response(1)

    authentication = listener_authentication(
        config,
        listener_name,
        SECRET.verifications(own_addresses),
        lambda user, mechanism: users.get((user, mechanism)),
    )
    async with serving(
        {ApiKey.HEARTBEAT: Api(0, 4, answer)},
        admission=Admission(authentication),
        tls=listener_tls(config, listener_name, config.security_protocol(listener_name), SECRET),
    ) as listener:
        own_addresses.add(f"127.0.0.1:{listener.port}")
        yield listener.port, heard


def ask(port: int, given: Mapping[str, str], access: SessionAccess) -> None:
    """Send a request with a DataFrame's options, where the application's sessions have this access."""
    address = f"127.0.0.1:{port}"
    client = KafkaOptions(
        {**given, "bootstrap.servers": address}, ApplicationAddress(address, access), report=print
    ).client()
    with connected(client, client.bootstrap_servers[0]) as channel:
        channel.request(heartbeat(1))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What the recipes have on their disks: users, and certificates of one authority."""
    (users,) = blocks(section("A laptop"), "text")
    (tmp_path / "first-users").write_text(users)
    authority = Authority()
    for name in ("ca.pem", "clients-ca.pem"):
        (tmp_path / name).write_text(authority.pem)
    server = authority.certify(hosts=["127.0.0.1"])
    for name in ("server.pem", "tls-combined.pem"):
        (tmp_path / name).write_text(server.key_pem + server.certificate_pem)
    admin = authority.certify("admin")
    (tmp_path / "admin.pem").write_text(admin.key_pem + admin.certificate_pem)
    return tmp_path


@pytest.mark.parametrize("title", ["A laptop", "Standalone, with SCRAM", "Kubernetes, with certificates"])
def test_recipe_knows_its_admin_and_the_application_s_sessions_and_nobody_else(
    title: str, files: Path
) -> None:
    """Whoever copies it has what it promises."""
    config, settings = recipe(title, files)
    (endpoint,) = config.listeners
    users = {
        (record.name, SCRAM_MECHANISMS[record.mechanism]): scram_credential_of_record(record)
        for record in read_initial_scram_users(files / "first-users")
    }

    async def scenario() -> list[Principal]:
        async with listening(config, endpoint.name, users) as (port, heard):
            await asyncio.to_thread(ask, port, settings, session_access(config, SECRET))
            await asyncio.to_thread(ask, port, {}, session_access(config, SECRET))
            for stranger in (
                {"security.protocol": "PLAINTEXT"},
                {
                    name: value
                    for name, value in settings.items()
                    if "keystore" not in name and "jaas" not in name
                },
            ):
                if "sasl.mechanism" in stranger:
                    stranger["sasl.jaas.config"] = settings["sasl.jaas.config"].replace(
                        "a long one", "another"
                    )
                with pytest.raises(KafkaError):
                    await asyncio.to_thread(
                        ask, port, stranger, session_access(config, ApplicationSecret.new())
                    )
        return heard

    assert run(scenario()) == [ADMIN, SESSION]
    if config.authorizer is not None:
        assert {ADMIN, SESSION} <= config.authorizer.super_users


@pytest.mark.parametrize("title", ["A laptop", "Standalone, with SCRAM"])
def test_recipe_has_spark_ask_who_comes_as_well(
    title: str, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else whoever is logged in on the machine would go through Spark's ports."""
    settings = dict(re.findall(r"^    (spark\.\S+) +(\S+)$", section(title), re.MULTILINE))
    context = context_of(None)
    for given, warnings in ((settings, 0), ({**settings, "spark.authenticate": "false"}, 1)):
        context.getConf.return_value = given
        open_network.check_spark_authenticates(context, recipe(title, files).cluster)
        assert len(caplog.records) == warnings


def test_recipe_of_executors_has_spark_open_no_port_that_ends_them(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else whoever is logged in on an executor's host could end it, and the broker in it."""
    title = "Standalone, with SCRAM"
    settings = dict(re.findall(r"^    (spark\.\S+) +(\S+)$", section(title), re.MULTILINE))
    context = context_of(None)
    context.master, context.version = "spark://driver.example.com:7077", "4.1.0"
    for given, warnings in ((settings, 0), ({"spark.authenticate": "true"}, 1)):
        context.getConf.return_value = given
        open_network.check_barrier_tasks(context, recipe(title, files).cluster)
        assert len(caplog.records) == warnings


def test_listener_of_brokers_alone_lets_in_the_application_s_sessions_and_the_other_its_users(
    files: Path,
) -> None:
    """Nobody comes in who is not known, though only one of the two has been given certificates."""
    (block,) = blocks(section("TLS", "##"), "properties")
    config = BrokerConfig.from_mapping(_here(block, files))
    open_network.check_listeners(config)
    inside, outside = config.listeners
    certificates = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": Path(files / "ca.pem").read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files / "admin.pem"),
    }
    own, none = session_access(config, SECRET), session_access(config, ApplicationSecret.new())
    # These don't mind who they talk to, so that it is for the listener to refuse them.
    strangers_inside = {
        **certificates,
        "ssl.truststore.certificates": own.authority_pem,
        "ssl.endpoint.identification.algorithm": "",
    }

    def without_certificate(settings: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in settings.items() if "keystore" not in name}

    async def scenario() -> list[Principal]:
        async with listening(config, inside.name, {}) as (port, of_application):
            await asyncio.to_thread(ask, port, {}, own)
            for stranger in ({}, strangers_inside, without_certificate(strangers_inside)):
                with pytest.raises(KafkaError):
                    await asyncio.to_thread(ask, port, stranger, none)
        async with listening(config, outside.name, {}) as (port, of_users):
            await asyncio.to_thread(ask, port, certificates, none)
            with pytest.raises(KafkaError):
                await asyncio.to_thread(ask, port, without_certificate(certificates), none)
        return of_application + of_users

    assert run(scenario()) == [SESSION, Principal("User", "CN=admin")]


@pytest.mark.parametrize(
    "key",
    [
        *("kafka.ssl.keystore.key", "kafka.ssl.truststore.password", "kafka.sasl.jaas.config"),
        *(f"sparklog.remote.option.{name}" for name in SECRETS_OF_STORES),
        *(f"sparklog.table.catalog.{name}" for name in ("uri", "credential", "s3.access-key-id")),
    ],
)
def test_redaction_of_the_page_hides_the_key(key: str) -> None:
    """Spark shows options of views and tables in plans, which more people read than may know a secret."""
    expressions = {
        *re.findall(r"^    spark\.redaction\.regex +(\S+)$", PAGE.read_text(), re.MULTILINE),
        *re.findall(r"^`(\(\?i\)[^`]+)`", PAGE.read_text(), re.MULTILINE),
    }
    (expression,) = expressions
    assert re.search(expression, key)


def test_redaction_of_the_page_shows_what_is_no_secret() -> None:
    """A plan without its options would not tell how a topic is read."""
    (expression,) = re.findall(r"^    spark\.redaction\.regex +(\S+)$", PAGE.read_text(), re.MULTILINE)
    for key in ("subscribe", "sparklog.remote.uri", "sparklog.remote.option.region", "keepEmptyKeys"):
        assert not re.search(expression, key)

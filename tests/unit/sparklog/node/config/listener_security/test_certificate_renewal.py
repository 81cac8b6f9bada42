"""Certificates that are renewed in their files, while a listener shows them."""

import logging
from pathlib import Path

import pytest

from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.certificate_renewal import CertificateRenewal
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.serving.listener import Listener
from tests.certificates import Authority, server_keys
from tests.unit.sparklog.node.serving.serving import HEARTBEAT_ONLY, RawClient, run, serving
from tests.unit.sparklog.node.serving.tls_serving import client_of

SECRET = ApplicationSecret.new()


def test_renewed_files_are_shown_and_broken_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files are replaced one after the other: half of a renewal must not take a listener down."""
    authority = Authority()

    async def shown(listener: Listener) -> str:
        client = await RawClient.connect(listener, tls=client_of(authority))
        certificate = client.writer.get_extra_info("peercert")
        client.close()
        return str(dict(part[0] for part in certificate["subject"])["commonName"])

    async def scenario() -> None:
        keys = server_keys(authority.certify("first"), tmp_path)
        config = BrokerConfig.from_mapping({"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **keys})
        tls = listener_tls(config, "SSL", SecurityProtocol.SSL, SECRET)
        async with serving(
            HEARTBEAT_ONLY, tls=tls, listener_name="SSL", security_protocol=SecurityProtocol.SSL
        ) as listener:
            renewal = CertificateRenewal(SECRET)
            await renewal.watch(listener, config)
            await renewal.check()
            assert await shown(listener) == "first"
            (tmp_path / "server.pem").write_text(authority.certify("half").key_pem)
            await renewal.check()
            assert await shown(listener) == "first"
            server_keys(authority.certify("second"), tmp_path)
            await renewal.check()
            assert await shown(listener) == "second"
            (tmp_path / "server.pem").unlink()
            await renewal.check()
            assert await shown(listener) == "second"

    with caplog.at_level(logging.ERROR):
        run(scenario())
    broken = [record.getMessage() for record in caplog.records]
    assert [line.startswith("test keeps its certificates: ") for line in broken] == [True, True]
    assert "ssl.keystore.location" in broken[0] and "cannot be read" in broken[1]

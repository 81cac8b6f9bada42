"""Texts of errors with secrets of the configuration in them."""

import pytest

from sparklog.driver.controller.tables.redaction import Redaction

REDACTION = Redaction(
    {
        "uri": "postgresql+psycopg2://lake:pass%40word@db:5432/lake",
        "credential": "client:hunter22",
        "warehouse": "lake",
        "header.X-Api": "letmein1",
        "adls.connection-string": "AccountName=lake;AccountKey=c2VjcmV0/+==;EndpointSuffix=core.windows.net",
    },
    {"aws_secret_access_key": "AKSECRETKEY", "region": "eu-central-1"},
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "(OperationalError) postgresql+psycopg2://lake:pass%40word@db:5432/lake",
            "(OperationalError) postgresql+psycopg2://lake:[hidden]@db:5432/lake",
        ),
        ("authentication failed with pass@word", "authentication failed with [hidden]"),
        ("invalid_client: client:hunter22", "invalid_client: [hidden]"),
        ("client_secret is hunter22", "client_secret is [hidden]"),
        ("X-Api: letmein1", "X-Api: [hidden]"),
        (
            "SignatureDoesNotMatch AKSECRETKEY in eu-central-1",
            "SignatureDoesNotMatch [hidden] in eu-central-1",
        ),
        ("GET https://host/v1?sig=abc%3D refused", "GET https://host/v1 refused"),
        ("redis://:other@host/1 is no catalogue", "redis://:[hidden]@host/1 is no catalogue"),
        ("401 for Authorization: Bearer eyJh.bGci-x", "401 for Authorization: Bearer [hidden]"),
        ('{"access_token": "abcdef", "expires_in": 3}', '{"access_token": "[hidden]", "expires_in": 3}'),
        ("c2VjcmV0/+== is no key of lake", "[hidden] is no key of lake"),
        ("AccountName=other;AccountKey=b3RoZXI=;", "AccountName=other;AccountKey=[hidden]"),
        ("se=2026-11-28&sp=r&sig=abc%3D&sv=1", "se=2026-11-28&sp=r&sig=[hidden]&sv=1"),
        ("table topics.orders in lake is gone", "table topics.orders in lake is gone"),
    ],
)
def test_text_of_an_error_has_no_secrets(text: str, shown: str) -> None:
    """It goes to the log, and to a page that is open to more people than the configuration."""
    assert REDACTION(text) == shown


def test_traceback_of_an_error_has_no_secrets() -> None:
    """Each error of its chain has its text in it."""
    try:
        try:
            raise ValueError("hunter22 is wrong")
        except ValueError as error:
            raise RuntimeError("lake:pass@word") from error
    except RuntimeError as error:
        shown = REDACTION.trace(error)
    assert "hunter22" not in shown
    assert "pass@word" not in shown
    assert "RuntimeError" in shown

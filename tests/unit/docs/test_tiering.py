"""The page about tiering names options that stores take."""

import re

import pytest

from sparklog.node.remote_log.opened_store import open_store
from tests.unit.docs.pages import REPOSITORY, code_spans

PAGE = REPOSITORY / "docs" / "tiering.md"
ROW = re.compile(r"^\| (`[^|]+) \| (`[^|]*`|all clouds) \| [^|]+ \|$", re.MULTILINE)
URIS = {"s3://": "s3://bucket/p", "gs://": "gs://bucket/p", "az://": "az://container/p"}
VALUES = {
    "virtual_hosted_style_request": "true",
    "allow_http": "true",
    "max_retries": "1",
    "endpoint": "http://127.0.0.1:1",
    "proxy_url": "http://127.0.0.1:1",
    "timeout": "1s",
    "connect_timeout": "1s",
    "server_side_encryption": "AES256",
    "sas_key": "sig=x",
    "account_key": "c2VjcmV0",
}
NEED_FILES = {"root_certificate", "service_account", "service_account_key"}


def options_of(scheme: str) -> set[str]:
    """Return the names in the rows of the page's table that are about a scheme."""
    names: set[str] = set()
    for options, stores in ROW.findall(PAGE.read_text()):
        if stores == "all clouds" or scheme in code_spans(stores):
            names.update(code_spans(options))
    return names


@pytest.mark.parametrize("scheme", URIS)
def test_options_of_the_page_are_taken_by_the_store(scheme: str) -> None:
    """A key that a page recommends must not be refused."""
    names = options_of(scheme) - NEED_FILES
    assert {"timeout", "allow_http"} <= names
    assert open_store(URIS[scheme], {name: VALUES.get(name, "x") for name in names})

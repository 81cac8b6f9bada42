"""Options of stores that pyiceberg gets, and those that it cannot get."""

import pytest

from sparklog.driver.controller.tables.store_properties import left_out


@pytest.mark.parametrize(
    ("uri", "catalog", "names"),
    [
        ("gs://bucket", {}, ("google_service_account_path", "root_certificate")),
        ("gs://bucket", {"gcs.oauth2.token": "t"}, ("root_certificate",)),
        ("s3://bucket", {}, ("root_certificate",)),
    ],
)
def test_options_without_a_property_of_pyicebergs_are_named(
    uri: str, catalog: dict[str, str], names: tuple[str, ...]
) -> None:
    """The tier reaches its store by them, and the table, in silence, would not."""
    options = {"root_certificate": "/ca.pem", "google_service_account_path": "/key.json", "timeout": "8s"}
    assert left_out(uri, options, catalog) == names

"""The store of the tier as pyiceberg's properties, so that a catalogue needs no credentials of its own.

Properties of `sparklog.table.catalog.*` come first. Without any, pyiceberg finds credentials by itself, in
the same places as the tier: environment, web identity, the role of the machine.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.node.remote_log.uri import parse_remote_uri

_S3: Final = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "virtual_hosted_style_request": "s3.force-virtual-addressing",
    "server_side_encryption": "s3.server-side-encryption",
    "sse_kms_key_id": "s3.sse-kms-key-id",
    "proxy_url": "s3.proxy-uri",
}
_AZURE: Final = {
    "account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "sas_key": "adls.sas-token",
    "tenant_id": "adls.tenant-id",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
}


_CERTIFICATES: Final = ("allow_invalid_certificates", "proxy_ca_certificate", "root_certificate")
_GOOGLE: Final = ("application_credentials", "service_account", "service_account_key", "service_account_path")
_GOOGLE_TOKEN: Final = "gcs.oauth2.token"


def store_properties(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store under their names in pyiceberg; those without one are left out.

    >>> store_properties("s3://bucket/prefix", {"aws_region": "eu-central-1", "timeout": "8s"})
    {'s3.region': 'eu-central-1'}
    """
    match parse_remote_uri(uri).scheme:
        case "s3":
            prefix, names = "aws_", _S3
        case "az" | "abfs" | "abfss":
            prefix, names = "azure_storage_", _AZURE
        case _:
            return {}
    return {
        names[plain]: value
        for key, value in options.items()
        if (plain := key.lower().removeprefix(prefix)) in names
    }


def left_out(uri: str, options: Mapping[str, str], catalog: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options without which pyiceberg may not reach a store, and for which it has no property.

    `catalog` are its properties.

    >>> left_out("gs://bucket", {"google_service_account": "/etc/key.json", "timeout": "8s"}, {})
    ('google_service_account',)
    """
    names = set(_CERTIFICATES)
    if parse_remote_uri(uri).scheme == "gs" and _GOOGLE_TOKEN not in catalog:
        names.update(_GOOGLE)
    return tuple(sorted(key for key in options if key.lower().removeprefix("google_") in names))


def table_uri(uri: str, options: Mapping[str, str]) -> str:
    """Return the URI of the store as readers of tables spell it.

    They know Azure's containers by `abfss` alone, with the account.

    >>> table_uri("az://container/prefix", {"account_name": "account"})
    'abfss://container@account.dfs.core.windows.net/prefix'
    """
    parsed = parse_remote_uri(uri)
    account = store_properties(uri, options).get("adls.account-name")
    if parsed.scheme == "az" and account:
        return str(
            parsed._replace(scheme="abfss", authority=f"{parsed.authority}@{account}.dfs.core.windows.net")
        )
    return str(parsed)

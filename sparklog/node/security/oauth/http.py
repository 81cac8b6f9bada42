"""HTTP requests to an identity provider. Blocks; errors show no answer, since it may hold a token."""

from collections.abc import Mapping
from typing import Final

from sparklog.node.security.tls.contexts import client_context
from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.node.security.tls.settings import StoreSettings, TlsSettings

TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 1 << 20


class ProviderError(Exception):
    """The identity provider has not answered as expected."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        """`is_final`: a retry is of no use."""
        super().__init__(reason)
        self.is_final = is_final


def provider_tls(options: Mapping[str, str]) -> TlsSettings:
    """Return the trust store of a login module's options, as in Kafka; by default the system's."""
    return TlsSettings(
        truststore=StoreSettings(
            type=options.get("ssl.truststore.type", "JKS"),
            location=options.get("ssl.truststore.location"),
            password=options.get("ssl.truststore.password"),
            certificates=options.get("ssl.truststore.certificates"),
        )
    )


def fetched(
    url: str,
    tls: TlsSettings,
    *,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return the answer, to a POST if there are `data`. Redirections are not followed.

    Raises:
        ProviderError: there is no answer, or its status is not 200 or 201.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class NoRedirection(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    try:
        opener = build_opener(HTTPSHandler(context=client_context(tls)), NoRedirection())
        request = Request(url, data, {"Accept": "application/json", **(headers or {})})
        with opener.open(request, timeout=timeout_s) as response:
            content = bytes(response.read(_MAX_BYTES + 1))
    except TlsConfigError as error:
        raise ProviderError(f"{url}: {error}", is_final=True) from error
    except HTTPError as error:
        is_final = 300 <= error.code < 500 and error.code not in (408, 425, 429)
        raise ProviderError(f"{url} has answered {error.code} {error.reason}", is_final=is_final) from None
    except URLError as error:
        raise ProviderError(f"{url}: {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise ProviderError(f"{url}: {error}") from error
    if len(content) > _MAX_BYTES:
        raise ProviderError(f"{url} has answered more than {_MAX_BYTES} bytes")
    return content

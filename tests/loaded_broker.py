"""A broker's code with the schemas of its APIs, for the process from which tests fork brokers.

A broker loads the schemas while it serves already, a few milliseconds at a time: two seconds of CPU for
each broker, and most tests start three or more. Loaded here, all of them share one copy.
"""

from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.codec.frames import request_codec
from tests import broker_process as broker_process

for api_key in (*CLIENT_VERSIONS, ApiKey.API_VERSIONS):
    versions = CLIENT_VERSIONS.get(api_key, known_versions(api_key))
    for version in range(versions.min_version, versions.max_version + 1):
        request_codec(api_key, version)

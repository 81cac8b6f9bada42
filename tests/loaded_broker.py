"""A broker's code with the schemas of its APIs, for the process from which tests fork brokers.

A broker loads the schemas while it serves already, a few milliseconds at a time: two seconds of CPU for
each broker, and most tests start three or more. Loaded here, all of them share one copy; so they do of what
a broker loads at its start (0.15 s), of what one with a tier loads in addition (0.4 s), and of the look at
all objects with which it begins (0.1 s).
"""

import gc
from importlib import import_module
from pkgutil import walk_packages

from sparklog.executor import api
from sparklog.executor.remote_reads import remote_reader as remote_reader
from sparklog.executor.tiering import remote_log_manager as remote_log_manager
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.remote_log import opened_store as opened_store
from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.codec.frames import request_codec
from tests import broker_process as broker_process

for module in walk_packages(api.__path__, f"{api.__name__}."):
    import_module(module.name)
for api_key in (*CLIENT_VERSIONS, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
    versions = CLIENT_VERSIONS.get(api_key, known_versions(api_key))
    for version in range(versions.min_version, versions.max_version + 1):
        request_codec(api_key, version)
gc.collect()
gc.freeze()

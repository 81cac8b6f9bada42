"""Errors of the controller's process, raised in the driver with their class and text."""

from sparklog.driver.controller.errors import DeposedError, StaleDirectoriesError
from sparklog.driver.process.messages import Failed
from sparklog.hosting import StartError
from sparklog.node.config import ConfigError
from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.protocol.errors import ErrorCode, KafkaError


class ControllerProcessError(Exception):
    """The controller's process failed by an error of unknown class, or without a message."""


def failed_by(error: BaseException) -> Failed:
    match error:
        case ConfigError():
            return Failed("ConfigError", (error.key, error.value, error.reason), None)
        case TlsConfigError():
            return Failed("TlsConfigError", (error.key, error.reason), None)
        case KafkaError():
            return Failed("KafkaError", (error.message,), error.error_code.value)
        case DeposedError():
            return Failed("DeposedError", (str(error),), None)
        case StartError() | StaleDirectoriesError():
            return Failed("StartError", (str(error),), None)
        case OSError(errno=int()):
            return Failed("OSError", (error.strerror or str(error),), error.errno)
    return Failed(type(error).__name__, (str(error),), None)


def error_of(failed: Failed) -> Exception:
    match failed:
        case Failed("ConfigError", (str(key), value, str(reason))):
            return ConfigError(key, value, reason)
        case Failed("TlsConfigError", (str(key), str(reason))):
            return TlsConfigError(key, reason)
        case Failed("KafkaError", (str(message),), int(code)):
            return KafkaError(ErrorCode(code), message)
        case Failed("DeposedError", (str(message),)):
            return DeposedError(message)
        case Failed("StartError", (str(message),)):
            return StartError(message)
        case Failed("OSError", (str(message),), int(code)):
            return OSError(code, message)
    return ControllerProcessError(": ".join((failed.error, *filter(None, failed.arguments))))

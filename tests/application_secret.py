"""The secret of the applications that tests play, and a listener's part in it."""

from typing import Final

from sparklog.node.security.application_secret import CLUSTER_MECHANISM, ApplicationSecret
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.machine.authenticator import Mechanisms


class _Everywhere:
    """All addresses there are."""

    def __contains__(self, address: object) -> bool:
        return True


SECRET: Final = ApplicationSecret.new()
CLUSTER_ADMISSION: Final = Admission(
    Authentication(Mechanisms({CLUSTER_MECHANISM: SECRET.verification(_Everywhere())}))
)
"""How a listener admits those who have the secret, and anybody else as ANONYMOUS."""

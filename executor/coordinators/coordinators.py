"""The coordinators of one broker, put together. Nothing is decided here.

Each kind is a runtime of its own. They hear of roles and metadata through `executor/replicas.py`, and
requests reach them from the handlers that `executor/api/apis.py` lists.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from executor.coordinators.groups.kind import group_coordinator
from executor.coordinators.runtime import CoordinatorRuntime
from sparklog.config import BrokerConfig
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.image import MetadataImage

__all__ = ["Coordinators"]


class Coordinators:
    """All coordinators of one broker."""

    def __init__(self, config: BrokerConfig, executor: Executor, obey_lease: Callable[[], None]) -> None:
        """`executor` reads logs and does heavy work; `obey_lease` comes before what nobody asked for."""
        self.groups = CoordinatorRuntime(group_coordinator(config), executor, obey_lease)
        self.runtimes: Sequence[CoordinatorRuntime] = (self.groups,)
        """Each is a role listener."""

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Tell every coordinator that the cluster is another one."""
        for runtime in self.runtimes:
            await runtime.apply(image, delta)

    async def stop(self) -> None:
        """Coordinate no more; before the replicas are stopped."""
        for runtime in self.runtimes:
            await runtime.stop()

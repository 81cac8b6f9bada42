"""What a listener's requests cost, API by API: as Kafka's RequestMetrics, without any handler's help."""

__all__ = ["ApiMetrics"]


class ApiMetrics:
    """The requests of one API that were answered since the listener began; read it whenever you like.

    A time is from when a request was received whole until its answer's bytes were there. Local is what of it
    this loop has worked at the request; the rest is waiting: for followers, threads, other requests' turns,
    and whatever a coroutine does.
    """

    __slots__ = ("count", "errors", "local_s", "total_s")

    def __init__(self) -> None:
        self.count = 0
        """Those that failed included."""
        self.errors = 0
        """Requests that failed as a whole: the answer has a top-level error, or the connection was closed."""
        self.total_s = 0.0
        self.local_s = 0.0

    @property
    def waiting_s(self) -> float:
        """What requests waited (Kafka's remote time, and what is lost between the steps of long ones)."""
        return self.total_s - self.local_s

    def answered(self, total_s: float, local_s: float, *, is_error: bool) -> None:
        """Count one request."""
        self.count += 1
        self.total_s += total_s
        self.local_s += local_s
        if is_error:
            self.errors += 1

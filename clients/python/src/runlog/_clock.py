"""Ages that count a suspension of the machine."""

import time


class SentAt:
    """The time at which a request was sent."""

    __slots__ = ("_monotonic", "_system")

    def __init__(self) -> None:
        self._monotonic, self._system = time.monotonic(), time.time()

    def age(self) -> float:
        """Seconds since then: by the monotonic clock, which can stop while the machine is suspended, or by the system's clock if
        that says more."""
        return max(time.monotonic() - self._monotonic, time.time() - self._system)

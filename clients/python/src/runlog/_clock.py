"""Ages that count a suspension of the machine."""

import time


def _since_boot() -> float:
    """Seconds of a monotonic clock. On Linux it also runs while the machine is suspended."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class SentAt:
    """The time at which a request was sent."""

    __slots__ = ("_since_boot", "_system")

    def __init__(self) -> None:
        self._since_boot, self._system = _since_boot(), time.time()

    def age(self) -> float:
        """Seconds since then: the greater value of the clock since boot and the system's clock. The system's clock also
        shows that a virtual machine was paused."""
        return max(_since_boot() - self._since_boot, time.time() - self._system)

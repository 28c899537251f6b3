"""Why a run ends before its last step: it is told to (SIGTERM, Ctrl-C), or its time is up."""

import signal
import threading
import time
from types import FrameType
from typing import Any, Self

LATE = 1  # no signal that is handled here has this number
REASONS = {LATE: "time is up", signal.SIGINT: "interrupted", signal.SIGTERM: "told to stop (SIGTERM)"}


class Stop:
    """Within its block the first signal is noted, for the loop to save its work; a second one ends the process."""

    def __init__(self, minutes: float) -> None:
        self.until = time.monotonic() + 60 * minutes if minutes else float("inf")
        self.signal = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python does not allow it
            self.before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self.__exit__()

    def reason(self) -> int:
        """0, LATE or the number of a signal."""
        return self.signal or (LATE if time.monotonic() > self.until else 0)

# mypy: ignore-errors
"""Time lines of accelerators. An emulated one: MLPerf Storage's method. Runs on the nodes; needs nothing of rackproof.

It takes a batch when it is free and the batch is there, and is then busy for the model's known time. Steps follow each
other on the emulated time line, not on that of ``sleep``: an operating system that wakes late costs no utilisation
while batches wait.
"""


class Window:
    """The timed part: from ``begin_s`` to ``end_s`` of a monotonic clock."""

    def __init__(self, begin_s, end_s):
        self.begin_s, self.end_s = begin_s, end_s

    def part(self, begin_s, end_s):
        """Seconds of an interval that lie in the window."""
        return max(0.0, min(end_s, self.end_s) - max(begin_s, self.begin_s))


class Accelerator:
    """Steps of ``step_s`` seconds."""

    def __init__(self, step_s, window):
        self.step_s, self.window = step_s, window
        self.free_s = float("-inf")
        self.busy_s = 0.0
        """Inside the window."""
        self.steps = 0
        """That ended inside the window."""

    def take(self, arrived_s):
        """Accept a batch that is there at ``arrived_s``; the end of its step."""
        begin_s = max(arrived_s, self.free_s)
        self.free_s = begin_s + self.step_s
        self.busy_s += self.window.part(begin_s, self.free_s)
        self.steps += self.window.begin_s < self.free_s <= self.window.end_s
        return self.free_s

    def account(self, arrived_s, end_s):
        """A step of a real accelerator: it ended at ``end_s``, its batch was there at ``arrived_s``."""
        begin_s = max(arrived_s, self.free_s)
        self.free_s = end_s
        self.busy_s += self.window.part(begin_s, end_s)
        self.steps += self.window.begin_s < end_s <= self.window.end_s


def accelerate(accelerator, take, sleep_until, done=lambda batch, end_s: None):
    """Feed an accelerator until the window ends, or ``take`` has no batch left.

    ``take(limit_s)`` waits for a batch until then: the batch, and since when it was there; None: there is none.
    ``done`` gets each batch at the end of its step.
    """
    while accelerator.free_s < accelerator.window.end_s:
        taken = take(accelerator.window.end_s)
        if taken is None:
            return
        batch, arrived_s = taken
        end_s = accelerator.take(arrived_s)
        sleep_until(end_s)
        done(batch, end_s)

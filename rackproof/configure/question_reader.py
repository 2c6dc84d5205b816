"""Child process of ``rackproof.run.plan_questions``: plans a deploy on recordings as often as it is told.

The first line on standard input is a JSON object: ``inventory``, ``deploy``, ``data``. Each further line, ``{"diff":
…}``, asks for one plan and is answered with one line: why there is no plan, or null. Questions that the recordings do
not answer are written by the connector of the recordings (``ASKED_FILE``).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from rackproof.configure.pyinfra_state import loaded, new_state, one_line, start


class LastError(logging.Handler):
    """The last error that pyinfra has shown."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = " ".join(record.getMessage().split())


def main() -> None:
    request = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a deploy prints is no answer
    last_error = LastError()
    start(last_error)
    for line in sys.stdin:
        print(json.dumps(_complaint(request, json.loads(line)["diff"], last_error)), file=answers, flush=True)


def _complaint(request: dict[str, Any], diff: bool, last_error: LastError) -> str | None:
    last_error.text = ""
    try:
        state = new_state(request["inventory"], request["data"], check_for_changes=True, diff=diff)
        with loaded(state, request["deploy"]):
            return None if state.active_hosts else last_error.text or "no node is left to plan"
    except (Exception, SystemExit) as error:
        return one_line(error)


if __name__ == "__main__":
    main()

"""The command ``rackproof``: signals are handled before anything else is imported."""

from __future__ import annotations

import os

from rackproof.remote.interrupt import STOPPING, again, end_now, handle_signals


def main() -> None:
    handle_signals()
    try:
        from rackproof.cli.main import main as command

        command()
    except KeyboardInterrupt:
        if STOPPING.is_set():
            os.write(2, f"rackproof: interrupted; {again()}\n".encode(errors="backslashreplace"))
            end_now()
        raise


if __name__ == "__main__":
    main()

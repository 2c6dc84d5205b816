"""``python -m rackproof`` is the command."""

from rackproof.cli.main import main

if __name__ == "__main__":
    main()

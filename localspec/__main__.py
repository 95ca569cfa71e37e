"""`python -m localspec`, and the console script: nothing is imported before an interruption is handled."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it quietly, too."""
    try:
        from localspec.cli.main import run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

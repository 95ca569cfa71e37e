"""Colours: one accent on quiet grounds, for dark and light terminals."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

DARK: Final = Theme(
    name="localspec-dark",
    primary="#4fb3a5",
    secondary="#82aadc",
    accent="#4fb3a5",
    warning="#d8a657",
    error="#e06c75",
    success="#4fb3a5",
    foreground="#d5dae0",
    background="#101418",
    surface="#171c22",
    panel="#1d242b",
    dark=True,
    variables={"scrollbar": "#36414b", "scrollbar-background": "#171c22", "scrollbar-corner-color": "#171c22"},
)
LIGHT: Final = Theme(
    name="localspec-light",
    primary="#0f766e",
    secondary="#2f5f9e",
    accent="#0f766e",
    warning="#9a6700",
    error="#b4232c",
    success="#0f766e",
    foreground="#1f2933",
    background="#fbfbfa",
    surface="#f0f1ef",
    panel="#e6e8e5",
    dark=False,
    variables={"scrollbar": "#c3c9c2", "scrollbar-background": "#f0f1ef", "scrollbar-corner-color": "#f0f1ef"},
)

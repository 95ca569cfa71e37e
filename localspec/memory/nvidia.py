"""NVIDIA cards, as the driver tells of them (NVML). Each is asked by itself: one that fails costs no other."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_MIG_ENABLED: Final = 1


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or one instance of a card that is divided (MIG). Both sizes are 0 where it has no memory of its own."""

    name: str
    uuid: str
    handle: Any
    total_bytes: int
    free_bytes: int
    is_instance: bool = False

    @property
    def has_memory(self) -> bool:
        """False for an integrated card, which shares the system's memory."""
        return self.total_bytes > 0


@functools.cache
def _started() -> tuple[Any | None, str]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return None, "There is no NVIDIA driver."
    except pynvml.NVMLError as error:
        return None, f"The NVIDIA driver cannot be used: {error}."
    return pynvml, ""


def nvml() -> Any | None:
    """The initialised module pynvml; None where there is no driver that works."""
    return _started()[0]


def lack() -> str:
    """Why `nvml` is None, as a sentence; "" where it is not."""
    return _started()[1]


def driver_versions() -> tuple[str, str] | None:
    """Of the driver, and of the newest CUDA that it runs, such as ("580.95.05", "13.0"); None: no driver that works."""
    driver = nvml()
    if driver is None:
        return None
    try:
        cuda = int(driver.nvmlSystemGetCudaDriverVersion())
        return _text(driver.nvmlSystemGetDriverVersion()), f"{cuda // 1000}.{cuda % 1000 // 10}"
    except driver.NVMLError:
        return None


def card_names() -> tuple[str, ...]:
    """All cards of this machine, visible to CUDA or not; none where one of them fails."""
    driver = nvml()
    if driver is None:
        return ()
    try:
        return tuple(_text(driver.nvmlDeviceGetName(handle)) for handle in _handles(driver))
    except driver.NVMLError:
        return ()


def process_bytes(pid: int) -> int | None:
    """Memory that a process takes on all cards; None: there is no card, or the driver does not tell."""
    driver = nvml()
    if driver is None:
        return None
    try:
        running = [each for handle in _handles(driver) for each in driver.nvmlDeviceGetComputeRunningProcesses(handle)]
    except driver.NVMLError:
        return None
    used = [each.usedGpuMemory for each in running if each.pid == pid and each.usedGpuMemory is not None]
    return sum(used) if used else None


def visible_cards(environ: Mapping[str, str] = os.environ) -> tuple[tuple[Card, ...], str]:
    """The cards that a process with this environment computes on, in CUDA's order, and what is amiss with others.

    The selection is CUDA's own:
    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    Where a visible card is divided (MIG), a process gets one instance and nothing else:
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html ("Device Enumeration").
    """
    driver = nvml()
    if driver is None:
        return (), lack()
    try:
        n_cards = int(driver.nvmlDeviceGetCount())
    except driver.NVMLError as error:
        return (), f"The NVIDIA driver cannot count the cards: {error}."
    cards = [_PhysicalCard(driver, number) for number in range(n_cards)]
    chosen, notes = _selected(cards, environ)
    usable: list[Card] = []
    for card in chosen:
        if isinstance(card, Card):
            usable.append(card)
        elif card.failure:
            notes.append(f"NVIDIA card {card.number} cannot be used: {card.failure}.")
        else:
            usable += card.units
            if card.is_divided and not card.units:
                notes.append(f"NVIDIA card {card.number} is in MIG mode and has no instance.")
    instances = [card for card in usable if card.is_instance]
    if instances and len(usable) > 1:
        notes.append(f"MIG: one process computes on one instance; the other {len(usable) - 1} are left out.")
        usable = instances[:1]
    if not cards:
        notes.append("The NVIDIA driver finds no card.")
    return tuple(usable), " ".join(notes)


class _PhysicalCard:
    """What the driver tells of a card: one unit to compute on, or its instances; or why it cannot be used."""

    def __init__(self, driver: Any, number: int) -> None:
        self.number = number
        self.uuid = ""
        self.failure = ""
        self.is_divided = False
        self.units: list[Card] = []
        try:
            handle = driver.nvmlDeviceGetHandleByIndex(number)
            self.uuid = _text(driver.nvmlDeviceGetUUID(handle))
            self.is_divided = _is_divided(driver, handle)
            if self.is_divided:
                self.units = _instances(driver, handle)
            else:
                self.units = [_card(driver, handle)]
        except driver.NVMLError as error:
            self.failure = str(error)


def _is_divided(driver: Any, handle: Any) -> bool:
    try:
        return bool(driver.nvmlDeviceGetMigMode(handle)[0] == _MIG_ENABLED)
    except driver.NVMLError:  # most cards do not know what that is
        return False


def _instances(driver: Any, handle: Any) -> list[Card]:
    found: list[Card] = []
    for index in range(driver.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = driver.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            found.append(_card(driver, instance, is_instance=True))
        except driver.NVMLError:  # places may be empty, or belong to another container
            continue
    return found


def _card(driver: Any, handle: Any, *, is_instance: bool = False) -> Card:
    """Integrated cards (GB10, Jetson) have no memory of their own to tell of."""
    name, uuid = _text(driver.nvmlDeviceGetName(handle)), _text(driver.nvmlDeviceGetUUID(handle))
    try:
        memory = driver.nvmlDeviceGetMemoryInfo(handle)
    except driver.NVMLError_NotSupported:
        if is_instance:
            raise
        return Card(name, uuid, handle, 0, 0)
    return Card(name, uuid, handle, int(memory.total), int(memory.free), is_instance)


def _selected(cards: list[_PhysicalCard], environ: Mapping[str, str]) -> tuple[list[_PhysicalCard | Card], list[str]]:
    """Those that the variable names, in its order: numbers or the beginnings of UUIDs, up to the first wrong one."""
    visible = environ.get(_VISIBLE)
    if visible is None:
        return [*cards], []
    chosen: list[_PhysicalCard | Card] = []
    words = [word.strip() for word in visible.split(",")] if visible.strip() else []
    notes = [] if words else [f"{_VISIBLE} is empty: it hides all NVIDIA cards."]
    for word in words:
        named = _named(cards, word)
        if named is None:
            known = "hides the cards from there on" if word == "-1" else "names no card there"
            notes.append(f"{_VISIBLE} is {visible!r}: {word!r} {known}.")
            break
        if named in chosen:  # to CUDA, a list that names one twice names none
            return [], [f"{_VISIBLE} is {visible!r}: it names a card twice, so it hides all of them."]
        chosen.append(named)
    names = {unit.name for card in cards for unit in card.units}
    has_numbers = any(word.isdecimal() for word in words)
    if has_numbers and len(names) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.append(f"{_VISIBLE} has numbers: CUDA puts the fastest card first unless CUDA_DEVICE_ORDER=PCI_BUS_ID.")
    return chosen, notes


def _named(cards: list[_PhysicalCard], word: str) -> _PhysicalCard | Card | None:
    if re.fullmatch(r"\d{1,4}", word):
        return cards[int(word)] if int(word) < len(cards) else None
    among: list[_PhysicalCard | Card] = [*cards]
    if word.startswith("MIG-"):
        among = [unit for card in cards for unit in card.units if unit.is_instance]
    elif not word.startswith("GPU-"):
        return None
    matching = [each for each in among if each.uuid.startswith(word)]
    return matching[0] if len(matching) == 1 else None


def _handles(driver: Any) -> list[Any]:
    return [driver.nvmlDeviceGetHandleByIndex(number) for number in range(driver.nvmlDeviceGetCount())]


def _text(value: str | bytes) -> str:
    """Older releases of the bindings give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

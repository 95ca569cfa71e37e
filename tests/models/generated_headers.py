"""Headers by the thousand, each wrong in its own way, through everything that reads headers; run as a program.

    python -m tests.models.generated_headers 50000 [SEED]

Prints one JSON object: how many were read and refused, the slowest in seconds, and the most memory that the process
had, in bytes. Anything but a header or a typed error ends it with a traceback.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from localspec.errors import IncompatiblePairError, LocalspecError, ModelFileError, UnsupportedModelError
from localspec.models.advice import warnings_for
from localspec.models.compat import judge_pair
from localspec.models.description import describe
from localspec.models.generative import not_generative
from localspec.models.gguf import parse_header
from localspec.models.header import GgufHeader
from localspec.models.vocabulary import read_vocabulary
from localspec.models.vocabulary_fingerprint import fingerprint_of
from tests.models.gguf_bytes import ARRAY, BOOL, F32, STRING, U8, U32, U64, entry, gguf, small, strings, tensor, text

KEYS = [
    "general.architecture",
    "general.alignment",
    "general.name",
    "general.type",
    "general.file_type",
    "general.license",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.chat_template",
    "llama.context_length",
    "llama.expert_count",
    "llama.expert_used_count",
    "llama.attention.causal",
    "llama.pooling_type",
    "split.no",
    "split.count",
    "",
    "a.key",
]
TEXTS = ["llama", "bert", "gpt2", "t5", "adapter", "", "\x1b[2J", "é🦙", "{{ messages }}", "x" * 5000]
LENGTHS = [0, 1, 7, 32, 2**16, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


@dataclass(frozen=True)
class Source:
    """A file of `size` bytes that begins with `head` and repeats `filling` after it."""

    head: bytes
    size: int
    filling: bytes = b"\0"

    def read(self, offset: int, n_bytes: int) -> bytes:
        n_bytes = max(0, min(n_bytes, self.size - offset))
        start = self.head[offset : offset + n_bytes]
        missing = n_bytes - len(start)
        if not missing:
            return start
        shift = (offset + len(start) - len(self.head)) % len(self.filling)
        return start + (self.filling * (missing // len(self.filling) + 2))[shift : shift + missing]


def value(rng: random.Random, kind: int) -> bytes:
    match kind:
        case 8:
            return text(rng.choice([*TEXTS, rng.randbytes(rng.randrange(20))]))
        case 9:
            item, count = rng.choice([*range(13), 99]), rng.choice([0, 1, 2, 5, 300])
            said = count if rng.random() < 0.9 else rng.choice(LENGTHS)
            body = b"".join(value(rng, item) for _ in range(count)) if item not in {9, 99} else rng.randbytes(8)
            return struct.pack("<IQ", item, said) + body
        case _:
            return rng.randbytes({0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(kind, 4))


def well_formed(rng: random.Random) -> bytes:
    """Entries of every kind under keys that mean something, and tensors of which most are in their place."""
    wildness = rng.choice([0.0, 0.02, 0.3])
    entries = []
    for key in rng.sample(KEYS, rng.randrange(len(KEYS))) + rng.choices(KEYS, k=rng.random() < wildness):
        kind = usual_kind(key) if rng.random() >= wildness else rng.choice([*range(13), 13, 2**31])
        if kind == ARRAY and rng.random() >= wildness:
            raw = strings(key, [rng.choice(TEXTS) for _ in range(rng.randrange(200))])[len(text(key)) + 4 :]
        elif key == "general.alignment" and rng.random() >= wildness:
            raw = struct.pack("<I", rng.choice([1, 8, 32, 64]))
        else:
            raw = value(rng, kind)
        if key or rng.random() < wildness:
            entries.append(entry(key, kind, raw))
    tensors, offset = [], 0
    for number in range(rng.choice([0, 0, 1, 3])):
        shape = (rng.choice([32, 256]), rng.choice([1, 2])) if rng.random() >= wildness else (rng.randrange(99),) * 3
        kind = 0 if rng.random() >= wildness else rng.randrange(45)
        tensors.append(
            tensor(f"blk.{number}.ffn_up_exps.weight", shape, kind, offset if rng.random() >= wildness else 7)
        )
        offset += 4 * shape[0] * shape[1]  # a multiple of 64: in its place at any alignment
    data = rng.randbytes(offset if rng.random() >= wildness else 100)
    return gguf(entries, tensors, data, version=rng.choice([2, 3]) if rng.random() >= wildness else rng.randrange(9))


def usual_kind(key: str) -> int:
    if key.endswith(("tokens", "merges")):
        return ARRAY
    if key.endswith(("add_bos_token", "causal")):
        return BOOL
    is_number = key.startswith(("llama.", "split.")) or key.endswith(("_token_id", "alignment", "file_type"))
    return U32 if is_number else STRING


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """Some bytes set, cut, inserted, or taken for the length of something."""
    changed = bytearray(raw)
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0:
                changed[place : place + 8] = struct.pack("<Q", rng.choice(LENGTHS))
            case 1:
                changed[place : place + 4] = struct.pack("<I", rng.choice(LENGTHS) % 2**32)
            case 2:
                changed[place:place] = rng.randbytes(rng.randrange(1, 40))
            case 3:
                del changed[place : place + rng.randrange(1, 40)]
            case _:
                changed[place : place + 1] = rng.randbytes(1)
    return bytes(changed)


def sources(rng: random.Random) -> Iterator[Source]:
    """Without end."""
    makers: list[Callable[[], bytes]] = [
        lambda: mutated(rng, small()),
        lambda: well_formed(rng),
        lambda: mutated(rng, well_formed(rng)),
        lambda: b"GGUF\x03\0\0\0" + rng.randbytes(rng.randrange(300)),
        lambda: rng.randbytes(rng.randrange(600)),
    ]
    while True:
        head = rng.choice(makers)()
        if rng.random() < 0.8:
            yield Source(head, len(head))
        else:  # what comes after the end is there, too
            yield Source(head, len(head) + rng.choice([1, 4096, 2**20, 2**40]), rng.choice([b"\0", b"\xff", b"\1\0\0"]))


def worst() -> Iterator[Source]:
    """What takes the most memory or time for its bytes, as far as is known."""
    most = 64 * 2**20
    tokens = [entry("tokenizer.ggml.model", STRING, text("gpt2"))]

    def array(item: int, count: int, key: str = "tokenizer.ggml.tokens") -> bytes:
        return gguf([*tokens, entry(key, ARRAY, struct.pack("<IQ", item, count))])

    yield Source(array(STRING, most // 8 - 100), most)  # millions of empty texts
    yield Source(array(STRING, most // 9 - 100), most, struct.pack("<Q", 1) + b"a")
    yield Source(array(U8, most - 1000), 2**40)
    yield Source(array(U64, most // 8 - 100, "a"), most)
    yield Source(array(F32, most // 4 - 100, "a"), most)
    yield Source(array(STRING, 1)[:] + struct.pack("<Q", most - 4096), most, b"a")  # one text in a list
    yield Source(gguf([entry("k", STRING, struct.pack("<Q", 8 * 2**20 - 100) + "🦙".encode())]), most, b"a")
    yield Source(gguf([entry("k", STRING, struct.pack("<Q", most - 4096))]), most, b"a")
    many = [entry(f"key.{number}", BOOL, b"\1") for number in range(65_000)]
    yield Source(gguf(many), len(gguf(many)))
    tensors = [tensor(f"t{number}", (1, 1, 1, 1), 0, 32 * number) for number in range(65_000)]
    yield Source(gguf([], tensors), 2**40)
    texts = gguf([entry(f"key.{number}", STRING, text("🦙" * 40)) for number in range(40_000)])
    yield Source(texts, len(texts))


def read(source: Source) -> GgufHeader:
    """Everything that looks into a header."""
    header = parse_header(PurePath("owner/repo/model.gguf"), source.size, source.read)
    assert header.data_offset <= header.file_size == source.size
    describe(header)
    vocabulary = read_vocabulary(header)
    if vocabulary is not None:
        fingerprint_of(vocabulary)
    not_generative(header)
    return header


def check(error: LocalspecError) -> None:
    assert error.hint
    assert len(error.message) < 1000


def main(n_headers: int, seed: int) -> None:
    rng = random.Random(seed)
    n_read, slowest_s = 0, 0.0
    last: GgufHeader | None = None
    generated = sources(rng)
    worst_cases = list(worst())
    for number in range(n_headers + len(worst_cases)):
        source = worst_cases[number] if number < len(worst_cases) else next(generated)
        started = time.perf_counter()
        try:
            header = read(source)
            if number >= len(worst_cases):
                n_read += 1
                judge_pair(header, last or header)
                warnings_for(header, last or header)
                last = header if header.data_offset < 100_000 else None
        except (ModelFileError, UnsupportedModelError, IncompatiblePairError) as error:
            check(error)
        slowest_s = max(slowest_s, time.perf_counter() - started)
        header = None  # type: ignore[assignment]
    found = {"n_headers": n_headers, "n_read": n_read, "n_refused": n_headers - n_read}
    print(json.dumps(found | {"slowest_s": round(slowest_s, 2), "peak_bytes": peak_bytes()}))


def peak_bytes() -> int:
    """The most memory that this program had; on Linux, `getrusage` counts that of whoever started it, too."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)

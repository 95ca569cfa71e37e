"""A bad draft from a good one: the same model without some of its layers. Also a command:

python -m tests.dropped_layers SOURCE.gguf RESULT.gguf EVERY     drops every EVERY-th layer
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import gguf


def write_without_layers(source: Path, result: Path, dropped: set[int]) -> None:
    """Copy a GGUF model, tensors as they are, without the layers of these numbers; the rest moves up."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    block_count = f"{architecture}.block_count"
    n_layers = int(reader.fields[block_count].contents())
    kept = [layer for layer in range(n_layers) if layer not in dropped]
    writer = gguf.GGUFWriter(result, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = len(kept) if name == block_count else field.contents()
        subtype = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], subtype)
    for tensor in reader.tensors:
        block = re.match(r"blk\.(\d+)\.(.*)", tensor.name)
        name = tensor.name
        if block:
            if int(block[1]) in dropped:
                continue
            name = f"blk.{kept.index(int(block[1]))}.{block[2]}"
        writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    every = int(sys.argv[3])
    write_without_layers(Path(sys.argv[1]), Path(sys.argv[2]), set(range(every - 1, 1000, every)))

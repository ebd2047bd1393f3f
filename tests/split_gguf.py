"""GGUF files in parts, as ``llama-gguf-split`` makes them, and with a byte of their header changed."""

from pathlib import Path
from typing import Any

from zerolm.checkpoints.gguf.header import read_gguf_header

SPLIT = ("split.no", "split.count", "split.tensors.count")


def split(file: Path, parts: int, target: Path, **changes: int) -> Path:
    """Return the first of so many parts of a file, in the folder ``target``, the last tensors in the last.

    ``changes`` are numbers of the last part's metadata, by the last part of their key.
    """
    import gguf

    reader: Any = gguf.GGUFReader(file)
    target.mkdir(exist_ok=True)
    each = -(-len(reader.tensors) // parts)
    files = [target / f"{file.stem}-{part + 1:05d}-of-{parts:05d}.gguf" for part in range(parts)]
    for part, place in enumerate(files):
        writer = gguf.GGUFWriter(place, "")
        writer.kv_data[0].clear()
        for field in reader.fields.values() if not part else ():
            if not field.name.startswith("GGUF."):
                sub = field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), field.types[0], sub)
        numbers = dict(zip(SPLIT, (part, parts, len(reader.tensors)), strict=True))
        if place == files[-1]:
            numbers |= {f"split.{name}": value for name, value in changes.items()}
        writer.add_uint16(SPLIT[0], numbers[SPLIT[0]])
        writer.add_uint16(SPLIT[1], numbers[SPLIT[1]])
        writer.add_int32(SPLIT[2], numbers[SPLIT[2]])
        for tensor in reader.tensors[part * each : (part + 1) * each]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return files[0]


def with_byte(file: Path, at: int, value: int) -> Path:
    """Return ``changed.gguf`` beside a file: the same with another byte before its tensors."""
    content = bytearray(file.read_bytes())
    content[at % min(start for start, _ in read_gguf_header(file).places.values())] = value
    changed = file.parent / "changed.gguf"
    changed.write_bytes(content)
    return changed

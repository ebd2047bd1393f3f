"""The weights of quantisation errors in a file for llama.cpp's quantiser (``--imatrix``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from gguf import GGUFValueType, GGUFWriter

from zerolm.carving.bits.weighed_child import WeighedChild
from zerolm.passes.loss_moments import MOMENT_TOKENS

IMATRIX: Final = "importances.imatrix"


def write_imatrix(weighed: WeighedChild, file: Path, text: str) -> None:
    """Write the importances of every matrix of a child by llama.cpp's names; ``text`` names their source.

    The file holds the importances of columns, scaled to mean 1, as sums over one token: readers divide by the
    count.
    """
    writer = GGUFWriter(file, "")
    writer.add_key_value("general.type", "imatrix", GGUFValueType.STRING)
    writer.add_array("imatrix.datasets", [text])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", MOMENT_TOKENS)
    for name, values in weighed.by_column():
        writer.add_tensor(f"{name}.in_sum2", values)
        writer.add_tensor(f"{name}.counts", np.ones((len(values), 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

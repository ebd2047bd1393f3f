"""Memory that was freed between blocks in use goes back to the system."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np
from zerolm.io.memory import give_back

def resident():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) >> 10

blocks = [np.ones(100 << 10, np.uint8) for _ in range(3000)]
some = blocks[::50]
del blocks
before = resident()
give_back()
assert float(sum(block.sum() for block in some)) == len(some) * (100 << 10)
print(before, resident())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say what is resident")
def test_what_was_freed_between_blocks_in_use_goes_back() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert after <= before - 200

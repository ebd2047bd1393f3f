"""The terminal's view of a calibration."""

from __future__ import annotations

from zerolm.api.calibrate import CalibrationReport


def show(result: CalibrationReport) -> None:
    """Print what was chosen, what it consists of, and how it does on hidden labels."""
    print("\n".join(result.lines()))

"""Exact arithmetic for the times of a run: all are whole numbers of one tiny unit.

The rates of the simulated clocks are binary fractions, so no reading is rounded. The code itself
rounds its readings to nanoseconds; `ROUNDING` allows for that.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

RATE_BITS = 52
"""A rate of a clock is a multiple of 2^-52: it is a double between 1 and 2."""

FAST_BITS = 24
"""The fastest allowed rate is a multiple of 2^-24."""

NANOSECOND = 1 << (RATE_BITS + FAST_BITS)
MICROSECOND = 1000 * NANOSECOND
ROUNDING = 3 * NANOSECOND
"""How far a reading of the code may be from the exact one."""

EPOCH = 1_750_000_000_000_000
"""The wall clock at the beginning of a simulation, in microseconds."""


def rate(text: float) -> int:
    """Returns the rate of a clock, as a multiple of 2^-52."""
    scaled = Fraction(text) * (1 << RATE_BITS)
    if scaled.denominator != 1:
        raise ValueError(f"no binary fraction between 1 and 2: {text}")
    return scaled.numerator


def fastest(drift_factor: float, rates: list[float]) -> int:
    """Returns the fastest allowed rate, if the slowest is 1, as a multiple of 2^-24: rounded up."""
    limit = max([1 / (1 - Fraction(drift_factor)), *map(Fraction, rates)])
    return ceil(limit * (1 << FAST_BITS))


def nanoseconds(time: int) -> str:
    """Returns a time as text, for people."""
    return f"{time / NANOSECOND / 1e6:.6f} ms"

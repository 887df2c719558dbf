"""TSC ticks to perf's ns and back by the kernel's own formula, bit for bit, modulo 2^64.

    quot = ticks >> shift ; rem = ticks & ((1 << shift) - 1)
    ns = zero + quot * mult + ((rem * mult) >> shift)

Source: tools/perf/util/tsc.c. In most recordings `zero` is a negative number that wrapped: nothing here may saturate.
"""

from __future__ import annotations

from fractions import Fraction

import polars as pl

from pipeline.clock_domains import TimeConversion
from pipeline.errors import InputError

_WORD = (1 << 64) - 1


class TscMap:
    """TSC ticks to perf's ns; an Int64 holds the same 64 bits as the kernel's unsigned word.

    The numbers are the kernel's own at the time of the recording, so there is no uncertainty in them; that they still
    hold later (a constant, non-stop TSC) is an assumption for whoever builds the graph to state.
    """

    def __init__(self, conversion: TimeConversion) -> None:
        if not 0 < conversion.mult < 1 << 32 or not 0 <= conversion.shift <= 32:
            raise InputError(
                f"impossible TSC conversion: mult {conversion.mult}, shift {conversion.shift}",
                "record it again",
            )
        self.conversion = conversion

    def convert(self, values: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return perf's ns of TSC ticks, and zero beside each."""
        known = self.conversion
        ticks = pl.col("x")
        if known.is_short:
            ticks = _word(known.cycles) + ((ticks - _word(known.cycles)) & _word(known.mask))
        quotient, rest = ticks // _word(1 << known.shift), ticks & _word((1 << known.shift) - 1)
        ns = _word(known.zero) + quotient * _word(known.mult)
        return _in_words(values, ns + (rest * _word(known.mult)) // _word(1 << known.shift))

    def rate_at(self, value: int) -> Fraction:
        """Return ns per tick."""
        return Fraction(self.conversion.mult, 1 << self.conversion.shift)

    def lowest(self, value: int) -> int:
        """Return the smallest tick at `value` ns or later, where nothing wraps."""
        tick = _as_signed(self._ticks(value))
        while self._ns(tick) < value:
            tick += 1
        return tick

    def inverse(self) -> TscInverse:
        """Return perf's ns to ticks."""
        return TscInverse(self)

    def _ns(self, ticks: int) -> int:
        known = self.conversion
        ticks &= _WORD
        if known.is_short:
            ticks = (known.cycles + ((ticks - known.cycles) & known.mask)) & _WORD
        rest = ticks & ((1 << known.shift) - 1)
        ns = known.zero + (ticks >> known.shift) * known.mult + ((rest * known.mult) >> known.shift)
        return _as_signed(ns)

    def _ticks(self, ns: int) -> int:
        known = self.conversion
        quotient, rest = divmod((ns - known.zero) & _WORD, known.mult)
        return ((quotient << known.shift) + (rest << known.shift) // known.mult) & _WORD


class TscInverse:
    """perf's ns to TSC ticks by the kernel's inverse, bit for bit: the exact quotient rounded down."""

    def __init__(self, forward: TscMap) -> None:
        self._forward = forward

    def convert(self, values: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return TSC ticks of perf's ns, and zero beside each."""
        known = self._forward.conversion
        since = pl.col("x") - _word(known.zero)
        quotient, rest = since // _word(known.mult), since % _word(known.mult)
        scale = _word(1 << known.shift)
        return _in_words(values, quotient * scale + (rest * scale) // _word(known.mult))

    def rate_at(self, value: int) -> Fraction:
        """Return ticks per ns."""
        return 1 / self._forward.rate_at(value)

    def lowest(self, value: int) -> int:
        """Return the smallest ns at `value` ticks or later, where nothing wraps."""
        ns = self._forward._ns(value)
        while _as_signed(self._forward._ticks(ns)) < value:
            ns += 1
        return ns


def _word(value: int) -> pl.Expr:
    return pl.lit(value & _WORD, pl.UInt64)


def _in_words(values: pl.Series, result: pl.Expr) -> tuple[pl.Series, pl.Series]:
    """Evaluate an expression of `x` in unsigned 64-bit words, which wrap as the kernel's do, and zeros beside them."""
    words = pl.DataFrame({"x": values.cast(pl.Int64).reinterpret(signed=False)})
    return words.select(result.reinterpret(signed=True)).to_series(), pl.zeros(
        len(values), pl.Int64, eager=True
    )


def _as_signed(word: int) -> int:
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word

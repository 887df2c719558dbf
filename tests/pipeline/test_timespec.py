"""Times as users write them: exact, and refused in one helpful line where they mean nothing."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UsageError
from pipeline.timespec import WallAnchor, parse_duration, parse_time, resolve

FIRST_NS = 829_851_181_123
LAST_NS = 831_000_000_000


def at(text: str, anchor: WallAnchor | None = None, first_ns: int = FIRST_NS, last_ns: int = LAST_NS) -> int:
    return resolve(parse_time(text), first_ns, last_ns, anchor)


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1.5s", FIRST_NS + 1_500_000_000),
        ("+1.5s", FIRST_NS + 1_500_000_000),
        ("250ms", FIRST_NS + 250_000_000),
        ("40us", FIRST_NS + 40_000),
        ("40µs", FIRST_NS + 40_000),
        ("40μs", FIRST_NS + 40_000),
        ("7ns", FIRST_NS + 7),
        (".5us", FIRST_NS + 500),
        ("5.s", FIRST_NS + 5_000_000_000),
        ("0s", FIRST_NS),
        ("-0s", LAST_NS),
        ("-250ms", LAST_NS - 250_000_000),
        ("829.851181", 829_851_181_000),
        ("829.851181123", 829_851_181_123),
        ("830", 830_000_000_000),
        ("830.0000000000000", 830_000_000_000),
        ("slice:12345", 1_234_500_000),
        (" 1s ", FIRST_NS + 1_000_000_000),
    ],
)
def test_a_time_is_placed_exactly(text: str, expected_ns: int) -> None:
    assert at(text) == expected_ns


def test_a_slice_begins_where_its_width_puts_it() -> None:
    assert resolve(parse_time("slice:3"), FIRST_NS, LAST_NS, width_ns=20_000_000) == 60_000_000


def test_years_of_uptime_lose_no_nanosecond() -> None:
    assert at("315360000.000000001") == 315_360_000_000_000_001


@given(st.integers(0, 2**62))
def test_seconds_on_the_clock_come_back_as_written(time_ns: int) -> None:
    assert at(f"{time_ns // 10**9}.{time_ns % 10**9:09d}") == time_ns


@given(st.integers(1, 10**9), st.sampled_from(["s", "ms", "us", "ns"]), st.integers(0, 9))
def test_a_duration_is_its_fraction_or_is_refused(digits: int, unit: str, decimals: int) -> None:
    text = f"{digits // 10**decimals}.{digits % 10**decimals:0{decimals}d}" if decimals else str(digits)
    unit_ns = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    exact = Fraction(digits, 10**decimals) * unit_ns
    if exact.denominator == 1:
        assert parse_duration(text + unit) == exact
    else:
        with pytest.raises(UsageError, match="finer than a nanosecond"):
            parse_duration(text + unit)


# 2024-05-17 12:00:00 UTC is 1715947200 s after the epoch (date -u -d '2024-05-17 12:00' +%s)
NOON_NS = 1_715_947_200 * 10**9
ANCHOR = WallAnchor(source_ns=1_000, wall_ns=NOON_NS)


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("2024-05-17T12:00:00Z", 1_000),
        ("2024-05-17t12:00:00z", 1_000),
        ("2024-05-17 12:00:00.000000001Z", 1_001),
        ("2024-05-17T14:00:00+02:00", 1_000),
        ("2024-05-17T06:30:00-05:30", 1_000),
        ("2024-05-16T12:00:00Z", 1_000 - 86_400 * 10**9),
        ("12:00:01.5", 1_000 + 1_500_000_000),
    ],
)
def test_wall_clock_times_go_through_the_anchor(text: str, expected_ns: int) -> None:
    assert at(text, ANCHOR, first_ns=1_000, last_ns=10**10) == expected_ns


def test_a_time_of_day_is_the_one_inside_the_capture() -> None:
    night = WallAnchor(source_ns=0, wall_ns=NOON_NS + 11 * 3600 * 10**9)  # 23:00
    assert at("00:30:00", night, first_ns=0, last_ns=2 * 3600 * 10**9) == 90 * 60 * 10**9
    assert at("22:59:59", night, first_ns=0, last_ns=10**9) == -(10**9)


def test_a_time_of_day_is_read_in_the_zone_of_the_anchor() -> None:
    berlin = WallAnchor(source_ns=0, wall_ns=NOON_NS, utc_offset_ns=2 * 3600 * 10**9)
    assert at("14:00:01", berlin, first_ns=0, last_ns=10**10) == 10**9


@pytest.mark.parametrize("text", ["12:03:04.5", "2024-05-17T12:03:04Z"])
def test_wall_clock_times_without_an_anchor_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="nothing ties this capture to the wall clock: give a duration"):
        at(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not a time: write a duration from the first event"),
        ("soon", "is not a time: write a duration"),
        ("1.5 parsecs", "is not a time"),
        ("1e3s", "is not a time"),
        ("1_000", "is not a time"),
        ("٣s", "is not a time"),
        ("nan", "is not a time"),
        ("1.2.3", "is not a time"),
        ("slice:-1", "is not a time"),
        ("slice:", "is not a time"),
        ("-5", "to count from the end give a unit, as in -5s"),
        ("0.5ns", "finer than a nanosecond"),
        ("829.8511811234", "finer than a nanosecond"),
        ("9223372037s", "too large"),
        ("9" * 5000, "too many digits"),
        ("slice:9223372036854775808", "too large"),
        ("slice:" + "9" * 5000, "too many digits"),
        ("24:00:00", "no time of day"),
        ("12:60:00", "no time of day"),
        ("23:59:60", "no time of day"),
        ("2024-02-30T00:00:00Z", "is no date"),
        ("2024-05-17T12:03:04", "has no time zone: write 2024-05-17T12:03:04Z"),
        ("2024-05-17T12:03:04+25:00", "no such time zone"),
        ("\udce9", "is not a time"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_time(text)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_place_beyond_64_bits_is_refused() -> None:
    with pytest.raises(UsageError, match="too far away"):
        at("9223372036s")
    with pytest.raises(UsageError, match="too far away"):
        at("slice:9223372036854775807")


@pytest.mark.parametrize(("text", "expected_ns"), [("100us", 100_000), ("1ns", 1), ("2.5ms", 2_500_000)])
def test_a_duration_is_nanoseconds(text: str, expected_ns: int) -> None:
    assert parse_duration(text) == expected_ns


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("100", "give it a unit, as in 100us"),
        ("0us", "not a positive duration"),
        ("-1ms", "not a positive duration"),
        ("wide", "write it like 100us; units are s, ms, us and ns"),
    ],
)
def test_a_width_that_is_no_duration_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_duration(text)
    assert told in str(refused.value)

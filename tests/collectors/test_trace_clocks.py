"""What Kineto's, Chrome's and speedscope's JSON say of their clock: exactly, whatever the digits."""

from __future__ import annotations

import gzip
import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import source_clocks, trace_clocks
from collectors.source import Source
from pipeline.clock_domains import SourceClocks
from pipeline.errors import InputError

BASE_NS = 1_727_743_122_000_000_000


def of_trace(text: str) -> SourceClocks:
    return trace_clocks.of_trace(Source("t.json", io.BytesIO(text.encode())))


def of_speedscope(*profiles: dict[str, Any], **more: Any) -> SourceClocks:
    text = json.dumps({**more, "profiles": list(profiles), "shared": {"frames": []}})
    return trace_clocks.of_speedscope(Source("s.json", io.BytesIO(text.encode())))


def kineto(*events: str, **members: Any) -> str:
    more = "".join(f', "{key}": {json.dumps(value)}' for key, value in members.items())
    return f'{{"traceEvents": [{", ".join(events)}], "distributedInfo": {{"rank": 0}}{more}}}'


def event(ts: str, dur: str = "0", ph: str = "X") -> str:
    return f'{{"ph": "{ph}", "name": "op", "ts": {ts}, "dur": {dur}}}'


def test_a_base_and_microseconds_are_wall_clock_time() -> None:
    found = of_trace(
        kineto(
            event("2413668742269.099", "8.250"),
            event("2413668742270.001", "0.0001"),
            event("1", ph="M"),
            baseTimeNanoseconds=BASE_NS,
            host_name="gpu-7",
        )
    )
    # 1727743122 s + 2413668.742269099 s = 1730156790.742269099 s, and 8.25 us later
    assert found == SourceClocks(
        "t.json", "realtime", "gpu-7", first=1_730_156_790_742_269_099, last=1_730_156_790_742_277_349
    )


def test_microseconds_since_1970_need_no_base() -> None:
    found = of_trace(kineto(event("1712195495406752.797", "1"), event("0", "5")))
    assert (found.clock, found.first, found.last) == (
        "realtime",
        1_712_195_495_406_752_797,
        1_712_195_495_406_753_797,
    )
    assert found.notes == ("1 events have times that are not since 1970: passed over",)


def test_small_times_without_a_base_are_relative() -> None:
    found = of_trace(kineto(event("62", "19")))
    assert (found.clock, found.first, found.last) == ("relative", 62_000, 81_000)


def test_py_spys_trace_counts_from_its_start() -> None:
    found = of_trace(
        '[{"ph": "B", "ts": 62, "cat": "py-spy", "name": "f"}, {"ph": "E", "ts": 81, "cat": "py-spy"}]'
    )
    assert found == SourceClocks(
        "t.json", "relative", first=62_000, last=81_000, notes=("its times count from py-spy's own start",)
    )


def test_another_tools_times_since_1970_are_said_to_be_guessed() -> None:
    found = of_trace(f"[{event('1712195495406752')}]")
    assert (found.clock, found.first) == ("realtime", 1_712_195_495_406_752_000)
    assert "by their size" in found.notes[0]


@given(
    base_ns=st.integers(0, 1 << 61),
    whole=st.integers(0, 10**15 - 1),
    digits=st.text("0123456789", min_size=1, max_size=40),
)
def test_no_digit_of_a_time_is_rounded(base_ns: int, whole: int, digits: str) -> None:
    text = f"{whole}.{digits}"
    found = of_trace(kineto(event(text), baseTimeNanoseconds=base_ns))
    assert found.first == found.last == base_ns + Fraction(text) * 1000 // 1


@given(st.text("0123456789", min_size=1, max_size=60), st.sampled_from([1, 1000, 10**9]))
def test_a_span_is_never_shortened(digits: str, unit_ns: int) -> None:
    text = f"1.{digits}"
    value = trace_clocks.JsonStream(Source("n", io.BytesIO(text.encode()))).value()
    exact = Fraction(text) * unit_ns
    assert trace_clocks.to_ns(value, unit_ns) == exact // 1
    assert trace_clocks.to_ns(value, unit_ns, is_up=True) == -(-exact // 1)


@pytest.mark.parametrize(
    "odd",
    [
        '"12"',
        "true",
        "null",
        "[1]",
        "1e59",
        "9" * 70,
        "-" + "9" * 30,
        "4611686018427387904",
    ],
)
def test_a_time_that_is_none_is_counted(odd: str) -> None:
    found = of_trace(kineto(event(odd), event("5", odd), event("5", "2"), baseTimeNanoseconds=0))
    assert (found.clock, found.first, found.last) == ("realtime", 5000, 7000)
    assert found.notes == ("2 events have no usable time",)


@pytest.mark.parametrize("base", ["soon", -1, 1 << 62, 10**40, True, None, 1.5])
def test_a_base_that_is_none_leaves_relative_times(base: Any) -> None:
    found = of_trace(kineto(event("5", "2"), baseTimeNanoseconds=base))
    assert (found.clock, found.first, found.last) == ("relative", 5000, 7000)
    assert "baseTimeNanoseconds is no usable number" in found.notes[0]


def test_a_trace_that_is_cut_off_tells_what_it_holds_and_what_is_lost() -> None:
    whole = kineto(event("5", "2"), event("9"), baseTimeNanoseconds=BASE_NS)
    found = of_trace(whole[: whole.index("distributedInfo")])
    assert (found.clock, found.first, found.last) == ("relative", 5000, 9000)
    assert "ends in the middle" in found.notes[0]


@pytest.mark.parametrize("text", ["{", '{"traceEvents": [', '{"traceEvents": [{"ph": "X", "ts": 1'])
def test_a_trace_without_one_whole_event_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="the JSON ends in the middle"):
        of_trace(text)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"traceEvents": 5}', '{"traceEvents": [5, null, {"ph": "M", "ts": 1}]}']
)
def test_a_trace_without_events_has_no_clock(text: str) -> None:
    assert of_trace(text) == SourceClocks("t.json", "")


# ------------------------------------------------------------------ speedscope


def sampled(unit: str, start: Any, end: Any) -> dict[str, Any]:
    return {
        "type": "sampled",
        "unit": unit,
        "startValue": start,
        "endValue": end,
        "samples": [],
        "weights": [],
    }


def test_profiles_count_from_their_own_start_in_their_own_unit() -> None:
    found = of_speedscope(sampled("milliseconds", 2, 7.5), sampled("seconds", 0.001, 0.002))
    assert (found.clock, found.first, found.last) == ("relative", 1_000_000, 7_500_000)


def test_events_say_more_than_a_profiles_declared_ends() -> None:
    events = [{"type": "O", "frame": 0, "at": 3}, {"type": "C", "frame": 0, "at": 4.5}]
    found = of_speedscope(
        {"type": "evented", "events": events, "startValue": 0, "endValue": 9, "unit": "microseconds"}
    )
    assert (found.first, found.last) == (3000, 4500)


def test_py_spys_samples_are_said_to_be_no_times_of_the_host() -> None:
    found = of_speedscope(sampled("seconds", 0, 1), exporter="py-spy@0.4.0")
    assert "leaves idle ones out" in found.notes[1]


@pytest.mark.parametrize("unit", ["bytes", "none", "parsecs", None, 5])
def test_what_is_not_counted_in_time_has_no_clock(unit: Any) -> None:
    assert of_speedscope(sampled(unit, 0, 5)) == SourceClocks("s.json", "")


@pytest.mark.parametrize(("start", "end"), [("0", 5), (0, None), (5, 1), (0, 10**30)])
def test_ends_that_are_none_give_no_times(start: Any, end: Any) -> None:
    assert of_speedscope(sampled("seconds", start, end)).clock == ""


# ------------------------------------------------------------------ real files


def test_real_traces_of_pytorch_are_on_the_wall_clock(corpus: Path) -> None:
    for path in sorted((corpus / "serving/kineto").iterdir()):
        found = source_clocks.of(path)
        document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Fraction)
        times = [
            Fraction(one["ts"])
            for one in document["traceEvents"]
            if one.get("ph") != "M" and isinstance(one.get("ts"), int | Fraction)
        ]
        base_ns = document.get("baseTimeNanoseconds", 0)
        assert found.clock == "realtime", path.name
        assert found.first == base_ns + min(times) * 1000 // 1, path.name
        assert found.last is not None
        assert found.last >= base_ns + max(times) * 1000 // 1, path.name
        assert 1_600_000_000 * 10**9 < found.first < 1_800_000_000 * 10**9, path.name


def test_real_recordings_of_py_spy(corpus: Path) -> None:
    folder = corpus / "serving/py-spy"
    trace = source_clocks.of(folder / "pyspy-toy.chrometrace")
    assert (trace.clock, trace.first, trace.last) == ("relative", 35_006_000, 2_199_475_000)
    profile = source_clocks.of(folder / "pyspy-toy.speedscope")
    assert (profile.clock, profile.first, profile.last) == ("relative", 0, 1_990_000_000)
    assert source_clocks.of(folder / "pyspy-toy.raw").clock == ""

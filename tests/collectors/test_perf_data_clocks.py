"""What perf.data says of clocks: files built byte by byte, damaged ones, those perf writes here, and the corpus."""

from __future__ import annotations

import gzip
import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import perf_data_clocks
from pipeline.clock_domains import Domain, Reading, Snapshot, SourceClocks, TimeConversion
from pipeline.errors import InputError

ALL_BITS = (1 << 64) - 1
IS_TIMED = 1 << 2  # PERF_SAMPLE_TIME
WALL_NS, MONOTONIC_NS = 1_796_097_220_690_226_000, 840_058_400_372
HOST = b"web-1"


class Builder:
    """Writes perf.data as perf does on a host of one byte order."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def pack(self, layout: str, *values: int | bytes) -> bytes:
        return struct.pack(self.order + layout, *values)

    def attr(self, clock_id: int | None = None, *, sample_type: int = IS_TIMED, size: int = 128) -> bytes:
        """Return a perf_event_attr; the compiler of a big-endian host lays bit 25 from the other end of its byte."""
        flags = bytearray(8)
        if clock_id is not None:
            flags[3] = 0x02 if self.order == "<" else 0x40
        body = self.pack("IIQQQQ", 1, size, 0, 1000, sample_type, 0) + bytes(flags)
        return (body.ljust(92, b"\0") + self.pack("i", clock_id or 0)).ljust(size, b"\0")[:size]

    def record(self, kind: int, body: bytes = b"") -> bytes:
        return self.pack("IHH", kind, 0, 8 + len(body)) + body

    def time_conv(
        self, conversion: TimeConversion, *, is_old: bool = False, can_convert: bool = True
    ) -> bytes:
        body = self.pack("3Q", conversion.shift, conversion.mult, conversion.zero)
        if not is_old:
            tail = (conversion.cycles, conversion.mask, int(can_convert), int(conversion.is_short), b"")
            body += self.pack("QQBB6s", *tail)
        return self.record(79, body)

    def text(self, value: bytes) -> bytes:
        return self.pack("I", 64) + value.ljust(64, b"\0")

    def clock_data(self, clock_id: int = 1, wall_ns: int = WALL_NS, value_ns: int = MONOTONIC_NS) -> bytes:
        return self.pack("IIQQ", 1, clock_id, wall_ns, value_ns)

    def file(
        self,
        attrs: list[bytes],
        records: bytes = b"",
        features: dict[int, bytes] | None = None,
        *,
        word: str = "Q",
    ) -> bytes:
        """Return a file: header, attributes, records, the table of the features, the features."""
        features = {3: self.text(HOST)} if features is None else features
        records = records or self.record(82)
        attr_size = len(attrs[0]) + 16
        entries = b"".join(one + self.pack("QQ", 0, 0) for one in attrs)
        data_at = 104 + len(entries)
        bits = 8 * struct.calcsize(word)
        words = [0] * (256 // bits)
        for number in features:
            words[number // bits] |= 1 << number % bits
        magic = b"PERFILE2" if self.order == "<" else b"2ELIFREP"
        header = magic + self.pack("QQ", 104, attr_size)
        header += self.pack("6Q", 104, len(entries), data_at, len(records), 0, 0)
        header += self.pack(f"{len(words)}{word}", *words)
        at = data_at + len(records) + 16 * len(features)
        table = b""
        for number in sorted(features):
            table += self.pack("QQ", at, len(features[number]))
            at += len(features[number])
        return header + entries + records + table + b"".join(features[one] for one in sorted(features))

    def pipe(
        self, attrs: list[bytes], records: bytes = b"", features: dict[int, bytes] | None = None
    ) -> bytes:
        magic = b"PERFILE2" if self.order == "<" else b"2ELIFREP"
        written = magic + self.pack("Q", 16)
        for one in attrs:
            written += self.record(64, one + self.pack("Q", 7))
        for number, body in (features or {}).items():
            written += self.record(80, self.pack("Q", number) + body)
        return written + records


LITTLE = Builder()
TSC = TimeConversion(shift=31, mult=566_188_880, zero=ALL_BITS + 1 - 26_662_395_465)
SHORT = TimeConversion(
    21, 25_165_824, ALL_BITS - 5, cycles=430_823_097_799, mask=(1 << 57) - 1, is_short=True
)
BY_ORDER = pytest.mark.parametrize("build", [Builder("<"), Builder(">")], ids=["little", "big"])
IN_BOTH_MODES = pytest.mark.parametrize("mode", ["file", "pipe"])


def read(tmp_path: Path, data: bytes, **known: str) -> SourceClocks:
    path = tmp_path / "perf.data"
    path.write_bytes(data)
    return perf_data_clocks.read(path, "run.data", **known)


def monotonic_and_wall(host: str = "web-1", boot_id: str = "") -> tuple[Snapshot, ...]:
    monotonic = Reading(Domain("monotonic", host, boot_id), MONOTONIC_NS, 0)
    wall = Reading(Domain("realtime", host, boot_id), WALL_NS, 4_000)
    return (Snapshot((monotonic, wall), "run.data: CLOCK_DATA"),)


@BY_ORDER
@IN_BOTH_MODES
def test_a_recording_with_k_gives_its_clock_and_the_time_of_day(
    tmp_path: Path, build: Builder, mode: str
) -> None:
    features = {
        3: build.text(HOST),
        21: build.pack("QQ", 5, 9),
        23: build.pack("Q", 1),
        29: build.clock_data(),
    }
    data = getattr(build, mode)([build.attr(1)], build.record(82), features)
    found = read(tmp_path, data)
    assert found == SourceClocks("run.data", "monotonic", "web-1", "", monotonic_and_wall(), None, 5, 9)


@BY_ORDER
@IN_BOTH_MODES
@pytest.mark.parametrize(
    ("written", "is_old"), [(TSC, True), (TSC, False), (SHORT, False)], ids=["32 bytes", "56 bytes", "short"]
)
def test_perfs_own_clock_comes_with_its_conversion(
    tmp_path: Path, build: Builder, mode: str, written: TimeConversion, is_old: bool
) -> None:
    records = build.record(69, b"\0" * 40) + build.time_conv(written, is_old=is_old) + build.record(82)
    found = read(tmp_path, getattr(build, mode)([build.attr()], records, {3: build.text(HOST)}))
    assert found == SourceClocks("run.data", "perf", "web-1", "", (), written)


def test_fields_behind_the_record_are_no_part_of_an_old_one(tmp_path: Path) -> None:
    # what follows the 32 bytes would read as a short counter
    records = LITTLE.time_conv(TSC, is_old=True) + LITTLE.record(69, b"\1" * 40)
    assert read(tmp_path, LITTLE.file([LITTLE.attr()], records)).conversion == TSC


def test_a_conversion_beside_k_is_of_perfs_own_clock(tmp_path: Path) -> None:
    records = LITTLE.time_conv(SHORT) + LITTLE.record(82)
    features = {6: LITTLE.text(b"aarch64"), 29: LITTLE.clock_data()}
    found = read(tmp_path, LITTLE.file([LITTLE.attr(1)], records, features))
    assert (found.clock, found.conversion) == ("monotonic", SHORT)
    assert found.notes == (
        "its TIME_CONV relates tsc to perf's own clock, not to monotonic, which stamped it",
        "tsc is the counter that aarch64 has in its place",
    )


@pytest.mark.parametrize(
    ("clock_id", "clock"),
    [(0, "realtime"), (1, "monotonic"), (4, "monotonic_raw"), (7, "boottime"), (11, "tai")],
)
def test_every_clock_of_k_is_known(tmp_path: Path, clock_id: int, clock: str) -> None:
    data = LITTLE.file([LITTLE.attr(clock_id)], features={29: LITTLE.clock_data(clock_id)})
    found = read(tmp_path, data)
    assert (found.clock, found.notes) == (clock, ())
    # the wall clock beside itself would be one clock twice at one instant
    read_clocks = [one.domain.clock for snapshot in found.snapshots for one in snapshot.readings]
    assert read_clocks == ([] if clock == "realtime" else [clock, "realtime"])


def test_a_clock_that_nobody_knows_belongs_to_the_source_alone(tmp_path: Path) -> None:
    found = read(tmp_path, LITTLE.file([LITTLE.attr(2)]))
    assert str(found.domain) == "relative@run.data"
    assert found.notes == ("its clock 2 is none that flameslice knows",)


def test_attributes_from_before_the_clock_was_chosen(tmp_path: Path) -> None:
    assert read(tmp_path, LITTLE.file([LITTLE.attr(size=64)])).clock == "perf"


def test_events_on_different_clocks_are_told(tmp_path: Path) -> None:
    attrs = [LITTLE.attr(0, sample_type=0), LITTLE.attr(4), LITTLE.attr(), LITTLE.attr(4)]
    found = read(tmp_path, LITTLE.file(attrs))
    assert found.clock == "monotonic_raw"
    assert found.notes == (
        "its events are on different clocks (monotonic_raw, perf): monotonic_raw is taken",
    )


def test_without_times_there_is_no_clock(tmp_path: Path) -> None:
    assert read(tmp_path, LITTLE.file([LITTLE.attr(1, sample_type=3)])).clock == ""


def test_what_the_caller_knows_wins(tmp_path: Path) -> None:
    data = LITTLE.file([LITTLE.attr(1)], features={3: LITTLE.text(HOST), 29: LITTLE.clock_data()})
    found = read(tmp_path, data, host="db-2", boot_id="3f2a")
    assert found.domain == Domain("monotonic", "db-2", "3f2a")
    assert found.snapshots == monotonic_and_wall("db-2", "3f2a")


def test_a_clock_with_coarse_steps_may_lag_by_one(tmp_path: Path) -> None:
    features = {23: LITTLE.pack("Q", 4_000_000), 29: LITTLE.clock_data()}
    found = read(tmp_path, LITTLE.file([LITTLE.attr(1)], features=features))
    assert found.snapshots[0].readings[0].uncertainty == 3_999_999


def test_a_pipe_knows_no_last_sample(tmp_path: Path) -> None:
    found = read(tmp_path, LITTLE.pipe([LITTLE.attr()], features={21: LITTLE.pack("QQ", 0, 0)}))
    assert (found.first, found.last, found.notes) == (None, None, ())


@IN_BOTH_MODES
def test_what_a_record_does_not_count_is_stepped_over(tmp_path: Path, mode: str) -> None:
    # both are followed by bytes that look like another TIME_CONV
    bait = LITTLE.time_conv(TimeConversion(1, 1, 1))
    tracing = LITTLE.record(66, LITTLE.pack("I", len(bait) - 3)) + bait  # padded to 8 bytes
    aux = LITTLE.record(71, LITTLE.pack("QQQIIII", len(bait), 0, 0, 0, 0, 0, 0)) + bait
    packed = LITTLE.record(81, b"\x28\xb5\x2f\xfd" + bait) + LITTLE.record(83, LITTLE.pack("Q", 56) + bait)
    records = tracing + aux + packed + LITTLE.time_conv(TSC)
    found = read(tmp_path, getattr(LITTLE, mode)([LITTLE.attr()], records))
    assert (found.conversion, found.notes) == (TSC, ())


def test_a_32_bit_host_of_the_other_endian_has_its_features_in_shorter_words(tmp_path: Path) -> None:
    build = Builder(">")
    data = build.file([build.attr(1)], features={3: build.text(HOST), 29: build.clock_data()}, word="I")
    assert read(tmp_path, data).snapshots == monotonic_and_wall()


def test_many_samples_do_not_hide_a_conversion_behind_them(tmp_path: Path) -> None:
    # perf record --tail-synthesize describes the host at the end
    records = LITTLE.record(9, b"\0" * 8000) * 500 + LITTLE.time_conv(TSC)
    assert read(tmp_path, LITTLE.file([LITTLE.attr()], records)).conversion == TSC


def test_compression_around_it_is_looked_through(tmp_path: Path) -> None:
    data = LITTLE.file([LITTLE.attr(1)], features={3: LITTLE.text(HOST), 29: LITTLE.clock_data()})
    assert read(tmp_path, gzip.compress(data)).snapshots == monotonic_and_wall()


# damage

FULL = LITTLE.file(
    [LITTLE.attr(1), LITTLE.attr(1)],
    LITTLE.record(69, b"\0" * 8) + LITTLE.time_conv(SHORT) + LITTLE.record(82) + LITTLE.record(9, b"\0" * 32),
    {
        3: LITTLE.text(HOST),
        6: LITTLE.text(b"aarch64"),
        21: LITTLE.pack("QQ", 5, 9),
        23: LITTLE.pack("Q", 1),
        29: LITTLE.clock_data(),
    },
)
PIPE = LITTLE.pipe([LITTLE.attr(1)], LITTLE.time_conv(SHORT) + LITTLE.record(82), {29: LITTLE.clock_data()})


@pytest.mark.parametrize("whole", [FULL, PIPE], ids=["file", "pipe"])
def test_a_cut_file_says_less_and_nothing_else(tmp_path: Path, whole: bytes) -> None:
    full = read(tmp_path, whole, host="web-1")
    assert full.snapshots
    assert full.conversion
    seen = set()
    for size in range(len(whole)):
        try:
            found = read(tmp_path, whole[:size], host="web-1")
        except InputError:
            assert size < 104
            continue
        assert found.snapshots in ((), full.snapshots)
        assert found.conversion in (None, SHORT)
        assert (found.first, found.last) in ((None, None), (full.first, full.last))
        assert found.clock in ("", "monotonic")
        assert found != full or size >= whole.rindex(struct.pack("<Q", MONOTONIC_NS))
        seen.add((bool(found.snapshots), found.conversion is not None))
    assert {(False, False), (False, True) if whole is FULL else (True, False)} <= seen


@given(st.lists(st.tuples(st.integers(0, len(FULL) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_bytes_end_in_an_error_or_in_a_result(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(FULL)
    for at, value in flips:
        data[at] = value
    try:
        found = read(tmp_path_factory.mktemp("flips"), bytes(data))
    except InputError:
        return
    assert all(0 < one.value < 1 << 63 for snapshot in found.snapshots for one in snapshot.readings)
    assert found.conversion is None or (found.conversion.mult > 0 and found.conversion.shift < 64)


@given(st.binary(max_size=400))
def test_any_bytes_behind_the_header_end_in_a_result(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    found = read(tmp_path_factory.mktemp("tail"), LITTLE.pipe([LITTLE.attr(1)]) + tail)
    assert found.source == "run.data"


def changed(at: int, layout: str, *values: int) -> bytes:
    data = bytearray(FULL)
    struct.pack_into("<" + layout, data, at, *values)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "run.data: this is not perf.data: record it with perf record"),
        (b"PERFFILE" + FULL[8:], "run.data: this is not perf.data: record it with perf record"),
        (FULL[:80], "run.data: this perf.data is cut within its header: copy it again"),
        (
            changed(8, "Q", 1 << 60),
            "run.data: the header of this perf.data claims 1152921504606846976 bytes: it is damaged: record again",
        ),
        (
            changed(16, "Q", 3),
            "run.data: this perf.data claims 3 bytes for the description of an event: it is damaged: record again",
        ),
    ],
)
def test_what_is_no_perf_data_is_refused_in_one_line(tmp_path: Path, data: bytes, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, data)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (changed(32, "Q", 144 * 10**9), "it claims 1000000000 events: only the first 4096 are looked at"),
        (changed(24, "QQ", 1 << 62, 144), "it is cut in the description of its events"),
        (changed(48, "Q", 1 << 62), "it is cut: its samples go on beyond the end of the file"),
        (changed(48, "Q", 0), "its recording did not end properly: its header was never finished"),
        (changed(104 + 2 * 144 + 4, "I", 0), "it is damaged: a record is shorter than its own header"),
        (
            changed(104 + 2 * 144 + 16 + 8, "Q", 64),
            "its TIME_CONV record is damaged (shift 64, multiplier 25165824)",
        ),
        (
            changed(104 + 2 * 144 + 16 + 16, "Q", 0),
            "its TIME_CONV record is damaged (shift 21, multiplier 0)",
        ),
        (changed(104 + 2 * 144 + 16 + 48, "B", 0), "its TIME_CONV record says that it cannot convert"),
        (changed(len(FULL) - 24, "I", 2), "its CLOCK_DATA is of version 2 and clock 1: not understood"),
        (changed(len(FULL) - 20, "I", 9), "its CLOCK_DATA is of version 1 and clock 9: not understood"),
        (
            changed(len(FULL) - 20, "I", 7),
            "its CLOCK_DATA is about boottime, which stamped none of its events",
        ),
        (changed(len(FULL) - 8, "Q", 0), f"its CLOCK_DATA is damaged ({WALL_NS} ns, 0 ns)"),
    ],
)
def test_damage_further_in_is_a_note(tmp_path: Path, data: bytes, note: str) -> None:
    assert note in read(tmp_path, data).notes


def test_a_record_that_claims_the_past_ends_the_walk(tmp_path: Path) -> None:
    # an AUXTRACE of nearly 2^64 bytes would lead back to itself in 64-bit arithmetic
    records = LITTLE.record(71, LITTLE.pack("QQQIIII", ALL_BITS - 55, 0, 0, 0, 0, 0, 0)) + LITTLE.time_conv(
        TSC
    )
    assert read(tmp_path, LITTLE.file([LITTLE.attr()], records)).conversion is None


def test_what_is_not_there_is_an_error_of_the_work(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no such file or directory: check the path"):
        perf_data_clocks.read(tmp_path / "none.data")


# perf itself


@pytest.mark.parametrize("clock", ["monotonic", "boottime", "tai"])
def test_what_perf_records_here_is_what_perf_prints_of_it(perf: str, tmp_path: Path, clock: str) -> None:
    path = tmp_path / "perf.data"
    command = [perf, "record", "-q", "-N", "-k", clock, "-e", "cpu-clock", "-o", str(path), "--", "true"]
    subprocess.run(command, check=True, capture_output=True)
    printed = subprocess.run(
        [perf, "script", "--header-only", "-i", str(path)], check=True, capture_output=True
    )
    found = perf_data_clocks.read(path, "run.data")
    assert found.clock == clock
    own, wall = found.snapshots[0].readings
    assert f"= {wall.value // 10**9}.{wall.value % 10**9 // 1000:06} (TOD)".encode() in printed.stdout
    assert f"= {own.value // 10**9}.{own.value % 10**9:09} ({clock})".encode() in printed.stdout
    assert f"# hostname : {found.host}\n".encode() in printed.stdout


def test_the_time_of_day_lies_within_its_uncertainty(perf: str, tmp_path: Path) -> None:
    # -k realtime reads one clock twice: the second reading is the truth of the first
    path = tmp_path / "perf.data"
    command = [perf, "record", "-q", "-N", "-k", "realtime", "-e", "cpu-clock", "-o", str(path), "--", "true"]
    late_ns = []
    for _ in range(5):  # a busy machine may put anything between the two reads
        subprocess.run(command, check=True, capture_output=True)
        printed = subprocess.run(
            [perf, "script", "--header-only", "-i", str(path)], check=True, capture_output=True
        )
        pair = re.search(rb"= (\d+)\.(\d{6}) \(TOD\) = (\d+)\.(\d{9}) \(realtime\)", printed.stdout)
        assert pair is not None
        wall_ns = int(pair[1]) * 10**9 + int(pair[2]) * 1000
        late_ns.append(int(pair[3]) * 10**9 + int(pair[4]) - wall_ns)
    assert 0 <= min(late_ns) <= perf_data_clocks.TIME_OF_DAY_UNCERTAINTY_NS


# the corpus: golden numbers by an independent walk over the same bytes

HAS_TIME_CONV = {
    "hotspot/perf.data.PerfFormatLost": TimeConversion(31, 566_188_880, 18_446_744_047_151_156_151),
    "linux-perf-data/sleep.compressed2.pipe.data": TimeConversion(
        31, 566_314_151, 18_446_744_059_172_366_642
    ),
    "linux-perf-data/sleep.compressed.data": replace(
        SHORT, zero=18_446_738_903_836_983_196, mask=144_115_188_075_855_871
    ),
    "linux-perf-data/sleep.compressed.pipe.data": replace(
        SHORT, zero=18_446_738_903_836_983_196, mask=144_115_188_075_855_871
    ),
}
HAS_CLOCK_DATA = {
    "linux-perf-data/fibo.compressed2.pipe.data": (1_642_884_550_397, 1_762_878_703_344_339_000),
    "linux-perf-data/sleep.data": (3_696_140_926_905, 1_762_604_581_421_437_000),
    "linux-perf-data/sleep.compressed.data": (336_720_701_640, 1_767_545_149_666_409_000),
    "linux-perf-data/sleep.compressed.pipe.data": (405_068_949_598, 1_767_545_218_014_657_000),
    "linux-perf-data/sleep.compressed2.data": (3_693_142_112_758, 1_762_604_578_422_622_000),
    "linux-tracepoints/perf.data": (12_782_502_283_276, 1_711_586_712_588_060_000),
    "linux-tracepoints/pipe.data": (12_799_249_383_892, 1_711_586_729_335_160_000),
}


def test_public_captures_say_what_the_index_says(corpus: Path) -> None:
    folder = corpus / "perf/perfdata"
    conversions, anchors, seen = {}, {}, 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not path.read_bytes().startswith(b"PERFILE2"):
            continue
        name, seen = str(path.relative_to(folder)), seen + 1
        found = perf_data_clocks.read(path)
        if found.conversion is not None:
            conversions[name] = found.conversion
        if found.snapshots:
            own, wall = found.snapshots[0].readings
            assert (own.domain.clock, wall.domain.clock) == ("monotonic", "realtime")
            anchors[name] = (own.value, wall.value)
        assert found.clock == ("monotonic" if name in HAS_CLOCK_DATA else "perf")
    assert seen == 10
    assert conversions == HAS_TIME_CONV
    assert anchors == HAS_CLOCK_DATA


def test_own_captures_say_their_clock(corpus: Path) -> None:
    folder = corpus / "perf/local/perfdata"
    clocks = {path.name: perf_data_clocks.read(path) for path in sorted(folder.glob("*.data"))}
    chosen = {"boottime": "boottime", "mono": "monotonic", "raw": "monotonic_raw", "realtime": "realtime"}
    for name, clock in chosen.items():
        assert clocks.pop(f"k_{name}.data").clock == clock
    assert {found.clock for found in clocks.values()} == {"perf"}
    assert all(found.conversion is None and not found.notes for found in clocks.values())
    assert (clocks["fp.data"].first, clocks["fp.data"].last) == (828_775_689_128, 829_389_788_076)
    assert clocks["pipe.data"].first is None

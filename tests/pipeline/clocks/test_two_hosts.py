"""Two hosts, joined through the spans of real requests between two network namespaces whose clocks are set apart."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from pipeline import clock_policy
from pipeline.clock_domains import Domain
from pipeline.clocks import ClockGraph
from pipeline.event_anchors import requests

TRIALS = 100
REQUESTS = 12
CLIENT, SERVER = Domain("realtime", "web-1"), Domain("realtime", "gpu-1")
MESSAGE = struct.Struct(
    "!qqdd"
)  # offset_ns, ppb; then how long the way there and back take beyond the network, s
ANSWER = struct.Struct("!qq")

# the server stamps with a clock that is offset and faster than the machine's, which both namespaces share
PROGRAM = """
import socket, struct, sys, time
message, answer = struct.Struct("!qqdd"), struct.Struct("!qq")
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := connection.recv(message.size, socket.MSG_WAITALL):
    offset_ns, ppb, there_s, back_s = message.unpack(data)
    def now(): t = time.monotonic_ns(); return t + offset_ns + t * ppb // 10**9
    time.sleep(there_s)
    begun = now()
    sum(range(2000))
    done = now()
    time.sleep(back_s)
    connection.sendall(answer.pack(begun, done))
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def namespaces() -> Iterator[tuple[str, str]]:
    """Make two network namespaces with a cable between them."""
    names = f"fsa{os.getpid()}", f"fsb{os.getpid()}"
    try:
        for name in names:
            run("ip", "netns", "add", name)
        run(
            "ip",
            "link",
            "add",
            "cable",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            names[1],
        )
        for number, name in enumerate(names, 1):
            run("ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "cable")
            run("ip", "-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextlib.contextmanager
def connected() -> Iterator[socket.socket]:
    """Yield a connection from one namespace to a server in the other; skip where none can be made."""
    with contextlib.ExitStack() as stack:
        try:
            client, server = stack.enter_context(namespaces())
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        program = stack.enter_context(
            subprocess.Popen(
                ["ip", "netns", "exec", server, sys.executable, "-c", PROGRAM, "10.77.0.2"],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(program.kill)
        assert program.stdout is not None
        port = int(program.stdout.readline())
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        other = os.open(f"/run/netns/{client}", os.O_RDONLY)
        stack.callback(os.close, own)
        stack.callback(os.close, other)
        _enter(other)
        try:
            connection = stack.enter_context(socket.create_connection(("10.77.0.2", port), timeout=30))
        finally:
            _enter(own)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def _enter(namespace: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "setns")


def test_the_true_offset_lies_inside_the_bound_in_every_trial() -> None:
    rng = random.Random(5)
    with connected() as connection:
        for trial in range(TRIALS):
            offset_ns, ppb = rng.randint(-(10**12), 10**12), rng.choice((-50_000, 0, 50_000))
            spans = []
            for _ in range(REQUESTS):
                delays = rng.choice((0.0, rng.random() / 500)), rng.choice((0.0, rng.random() / 2000))
                sent = time.monotonic_ns()
                connection.sendall(MESSAGE.pack(offset_ns, ppb, *delays))
                begun, done = ANSWER.unpack(connection.recv(ANSWER.size, socket.MSG_WAITALL))
                spans.append((sent, time.monotonic_ns(), begun, done))
            (edge,) = clock_policy.edges_of(requests(CLIENT, SERVER, spans))
            graph = ClockGraph([edge])
            longest_trip = max(received - sent - (done - begun) for sent, received, begun, done in spans)
            for sent, received, *_ in spans:
                for now in (sent, received):
                    converted = graph.convert_one(now, CLIENT, SERVER)
                    assert converted is not None
                    value, uncertainty = converted
                    truth = now + offset_ns + now * ppb // 10**9
                    assert abs(value - truth) <= uncertainty, (trial, offset_ns, ppb)
                    assert uncertainty < 2 * longest_trip

"""The program behind these recordings: one thread that computes, in functions of known shares, for one second."""

import sys
import time


def spin(until_s: float) -> None:
    while time.perf_counter() < until_s:
        pass


def tokenize(until_s: float) -> None:
    spin(until_s)


def schedule(until_s: float) -> None:
    while time.perf_counter() < until_s:
        pass


def step() -> None:
    now_s = time.perf_counter()
    tokenize(now_s + 0.03)
    schedule(now_s + 0.04)


for _ in range(int(sys.argv[1])):
    step()

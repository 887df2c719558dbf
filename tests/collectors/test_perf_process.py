"""perf's own words become one line of ours with the remedy that fits."""

from __future__ import annotations

import pytest

from collectors.perf_process import error_line, refusal

LIMITED = """\
Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
  -1: Allow use of (almost) all events by all users
>= 2: Disallow kernel profiling
To make the adjusted perf_event_paranoid setting permanent preserve it
in /etc/sysctl.conf (e.g. kernel.perf_event_paranoid = <setting>)
"""
NO_TRACEFS = """\
event syntax error: 'sched:sched_switch'
                     \\___ can't access trace events

Error:\tNo permissions to read /sys/kernel/tracing/events/sched/sched_switch
Hint:\tTry 'sudo mount -o remount,mode=755 /sys/kernel/tracing/'

Run 'perf list' for a list of valid events

 Usage: perf record [<options>] [<command>]
    -e, --event <event>   event selector. use 'perf list' to list available events
"""


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        ("Error:\nwrong clockid (0).\n", "wrong clockid (0)"),
        (NO_TRACEFS, "No permissions to read /sys/kernel/tracing/events/sched/sched_switch"),
        ("Couldn't create thread/CPU maps: No such process\n", "Couldn't create thread/CPU maps: No such process"),
        ("Events disabled\nEvents enabled\nfailed to write\n[ perf record: Captured ]\n", "failed to write"),
        ("", "it failed without a word"),
        ("Events disabled\n", "it failed without a word"),
        ("Error:\n", "it failed without a word"),
    ],
)  # fmt: skip
def test_the_line_that_says_what_went_wrong_is_found(stderr: str, line: str) -> None:
    assert error_line(stderr) == line


@pytest.mark.parametrize(
    ("stderr", "problem", "remedy"),
    [
        (LIMITED, "perf may not record this (perf_event_paranoid is 2)", "perf_event_paranoid=-1"),
        (NO_TRACEFS, "No permissions to read", "--preset cpu"),
        ("Error:\nwrong clockid (0).\n", "wrong clockid", "--clock monotonic"),
        ("something new\n", "perf: something new", "flameslice doctor"),
    ],
)
def test_a_refusal_says_what_to_do(stderr: str, problem: str, remedy: str) -> None:
    error = refusal(stderr, "2")
    assert problem in error.problem
    assert remedy in error.remedy
    assert error.text == stderr

"""The errors a user can meet, each one line: `file:line: problem: what to do`.

The command line prints that line and exits 1 (2 for wrong usage); the offending text comes with `-v`.
"""

from __future__ import annotations

import errno


def one_line(text: str, limit: int = 300) -> str:
    """Return text fit for one line of a terminal: control characters escaped, cut at limit characters."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )
    shown = shown.encode("utf-8", "backslashreplace").decode("utf-8")
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


class FlamesliceError(Exception):
    """Something the user can act on; `str()` of it is the line to show."""

    exit_status = 1

    def __init__(
        self,
        problem: str,
        remedy: str = "",
        *,
        path: str = "",
        line: int | None = None,
        text: str = "",
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.path = path
        self.line = line
        self.text = text

    def __str__(self) -> str:
        where = one_line(self.path)
        if where and self.line is not None:
            where += f":{self.line}"
        return ": ".join(one_line(part, 600) for part in (where, self.problem, self.remedy) if part)


class InputError(FlamesliceError):
    """The input cannot be read as what it claims to be, or holds nothing to work on."""


class WorkError(FlamesliceError):
    """The work failed for a reason outside the input: a tool is missing, the disk is full, perf refused."""


class UsageError(FlamesliceError):
    """The command was asked for something it does not offer."""

    exit_status = 2


def from_os_error(error: OSError, path: str) -> FlamesliceError:
    """Turn an operating system error about path into one of ours, with its remedy."""
    remedies = {
        errno.ENOENT: "check the path",
        errno.EACCES: "check the permissions, or run as a user who may read it",
        errno.EPERM: "check the permissions",
        errno.EISDIR: "give a file",
        errno.ENOSPC: "free space on that disk, or write elsewhere",
        errno.EDQUOT: "free space, or write elsewhere",
        errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write elsewhere",
        errno.EROFS: "write elsewhere",
    }
    problem = (error.strerror or str(error)).lower()
    return WorkError(problem, remedies.get(error.errno or 0, ""), path=path)

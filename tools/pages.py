"""Writes what the docs take from the code; --check: is it up to date?

docs/tables.md comes from pipeline/schema.py and pipeline/losses.py: what one row is stands in the comment
above a table, what a column means in the comment behind it or above it; what it means in every table stands
below. The list of modules in docs/architecture.md comes from the first sentences of docstrings.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pipeline.losses import REASONS  # noqa: E402  (the checkout's own, wherever this runs)
from pipeline.schema import KEYS, SCHEMA_VERSION, STORED, TABLES  # noqa: E402

TABLES_PAGE = ROOT / "docs" / "tables.md"
ARCHITECTURE_PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("pipeline", "collectors", "analyzers", "dashboards", "flameslice")
MARK = "<!-- from here on made by tools/pages.py from the modules' docstrings: do not edit -->\n"
SOURCE = ROOT / "pipeline" / "schema.py"

EVERYWHERE = {
    "host": "the host's name, where the capture says it",
    "cpu": "the CPU's number",
    "pid": "process id",
    "tid": "thread id",
    "comm": "the thread's name at that time",
    "clock": "the clock that stamped the row: perf, monotonic, tsc, ...",
    "frame_id": "content hash of the frame",
    "stack_id": "content hash of the stack; 0: without frames",
    "symbol": "the function's name; empty: unknown",
    "dso": "the file that the code lies in: a library, the kernel",
    "file": "source file, where known",
    "line": "source line, where known",
    "kind": "as in intervals",
    "name": "as in intervals",
    "period": "in the event's unit",
    "start_ns": "where the slice starts",
    "busy_ns": "how much of the slice it took",
    "events": "how many samples or events fell into it",
    "bytes": "how many bytes were moved",
    "reason": "see below",
    "count": "how many",
    "severity": "info, warning, error",
    "first_line": "where the first one is, 1-based in the decoded text",
    "example": "the text of the first one",
    "boot_id": "the boot of that host",
    "snapshot": "readings with one number were taken together",
    "value": "what the clock read, in its ticks",
    "uncertainty_ns": "by how much the reading may be off",
}

HEAD = f"""<!-- made by tools/pages.py from pipeline/schema.py and pipeline/losses.py: do not edit -->
# Tables

Schema version {SCHEMA_VERSION}. Times are 64-bit integers in ticks of the row's clock (nanoseconds for perf's
clocks), never floats. Names are valid UTF-8: a byte that is not stands as `\\xNN`, a real backslash as
`\\x5c`. Ids of frames and stacks are 64-bit content hashes, the same on every machine.
"""


STORED_HEAD = f"""
## Stored rows

{", ".join(f"`{name}`" for name in STORED)} are kept in the store ([where and how](store.md)); intervals and slices
are made when a question is asked. A stored row has these columns before the table's own.

"""


REASONS_HEAD = """
## Reasons of losses

What could not be read or placed is counted under one of these. Rows lost under a reason that says 'yes'
take part in the share that `--max-loss` bounds.

"""


def comment_above(lines: list[str], number: int) -> str:
    """Return the comment lines right above line number (1-based), joined."""
    found: list[str] = []
    while number >= 2 and lines[number - 2].strip().startswith("#"):
        found.insert(0, lines[number - 2].strip().lstrip("# "))
        number -= 1
    return " ".join(found)


def comment_behind(line: str) -> str:
    """Return the comment at the end of a line of code."""
    return line.partition("  # ")[2].strip()


def described(lines: list[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield (name, what one row is, meaning by column) of each table in the source."""
    for node in ast.parse("\n".join(lines)).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args):
            continue
        columns = node.value.args[0]
        if not (isinstance(node.targets[0], ast.Name) and isinstance(columns, ast.Dict)):
            continue
        meanings = {}
        for key, value in zip(columns.keys, columns.values, strict=True):
            if isinstance(key, ast.Constant):
                both = (comment_above(lines, key.lineno), comment_behind(lines[(value.end_lineno or 0) - 1]))
                meanings[str(key.value)] = " ".join(filter(None, both))
        yield node.targets[0].id.lower(), comment_above(lines, node.lineno), meanings


def tables_page() -> str:
    """Return docs/tables.md."""
    out = [HEAD]
    said = {name: (row, meanings) for name, row, meanings in described(SOURCE.read_text().splitlines())}
    for name, schema in TABLES.items():
        row, meanings = said[name]
        out += [f"\n## {name}\n\n{row[:1].upper()}{row[1:]}.\n\n| column | type | meaning |\n|---|---|---|\n"]
        for column, dtype in schema.items():
            meaning = meanings[column] or EVERYWHERE.get(column, "")
            assert meaning, f"say in a comment in pipeline/schema.py what {name}.{column} means"
            out += [f"| `{column}` | {dtype} | {meaning} |\n"]
    out += [STORED_HEAD, "| column | type | meaning |\n|---|---|---|\n"]
    _, meanings = said["keys"]
    out += [f"| `{column}` | {dtype} | {meanings[column]} |\n" for column, dtype in KEYS.items()]
    out += [REASONS_HEAD]
    out += ["| reason | severity | rows of the file | meaning |\n|---|---|---|---|\n"]
    for name, reason in REASONS.items():
        out += [
            f"| `{name}` | {reason.severity} | {'yes' if reason.counts_rows else 'no'} | {reason.text} |\n"
        ]
    return "".join(out)


def first_sentence(docstring: str) -> str:
    """Return the first sentence of a docstring's first paragraph."""
    paragraph = " ".join(docstring.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!])\s", paragraph)[0].rstrip(":.")


def modules_list() -> str:
    """Return the list of modules, folder by folder."""
    out = []
    for package in PACKAGES:
        for folder in sorted({path.parent for path in (ROOT / package).rglob("*.py")}):
            out.append(f"\n### {folder.relative_to(ROOT)}/\n\n")
            for path in sorted(folder.glob("*.py")):
                docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
                name = "the folder" if path.name == "__init__.py" else f"`{path.name}`"
                out.append(f"- {name}: {first_sentence(docstring)}\n")
    return "".join(out)


def pages() -> dict[Path, str]:
    """Return what each page should hold."""
    written_by_hand = ARCHITECTURE_PAGE.read_text().partition(MARK)[0]
    return {TABLES_PAGE: tables_page(), ARCHITECTURE_PAGE: written_by_hand + MARK + modules_list()}


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if is_check:
            print(f"{path.relative_to(ROOT)} is not what the code says: run make docs")
        else:
            path.write_text(pages()[path])
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""What FLAMESLICE_REQUIRE names is here, whatever tests skip by a condition of their own."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("kafka")  # the fixture may start the broker, of which one worker has one
def test_required_things_are_here(request: pytest.FixtureRequest) -> None:
    for name in filter(None, os.environ.get("FLAMESLICE_REQUIRE", "").split(",")):
        request.getfixturevalue(name.strip())  # an unknown name fails too

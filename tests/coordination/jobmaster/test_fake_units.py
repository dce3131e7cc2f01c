"""The fake units pass the contract of units."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.units_contract import UnitsContract
from tests.fakes.fake_units import Copies, FakeCheckpoints, FakeUnits


class TestFakeUnits(UnitsContract):
    @pytest.fixture
    def copies(self) -> Copies:
        return Copies()

    @pytest.fixture
    def units(self, copies: Copies) -> FakeUnits:
        return FakeUnits(copies)

    @pytest.fixture
    def checkpoints(self, copies: Copies) -> FakeCheckpoints:
        return FakeCheckpoints(copies)

    @pytest.fixture
    def step(self, units: FakeUnits) -> Callable[[], None]:
        return units.step

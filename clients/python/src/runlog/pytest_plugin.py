"""Fixtures for pytest: `pytest_plugins = ["runlog.pytest_plugin"]` in `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .testing import Journal, Journals


@pytest.fixture(scope="session")
def runlog_journals() -> Iterator[Journals]:
    """Empty journals, for tests that need more than one."""
    journals = Journals()
    yield journals
    journals.close()


@pytest.fixture
def runlog_journal(runlog_journals: Journals) -> Iterator[Journal]:
    """An empty journal of the test's own."""
    with runlog_journals.journal() as journal:
        yield journal

"""What every test runs under: asyncio as the only event loop, and hypothesis without luck or clock."""

import pytest
from hypothesis import settings

pytest_plugins = ["tests.postgres"]

# The same examples every time, so that a failure in CI is a failure here.
# `pytest --hypothesis-profile=explore` looks further, at other examples each time.
settings.register_profile("subgrant", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", max_examples=2000, database=None, deadline=None)
settings.load_profile("subgrant")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import palyra
from fakes.loopback import serving
from fakes.tiny_api import TOKEN, TinyApi
from palyra.client import operations
from palyra.client.address import PlaintextRefused, UnusableToken
from palyra.client.client import AsyncClient, Client


def test_the_package_offers_both_lazily() -> None:
    assert (palyra.Client, palyra.AsyncClient) == (Client, AsyncClient)
    assert {"Client", "AsyncClient"} <= set(dir(palyra))
    with pytest.raises(AttributeError):
        _ = palyra.Nothing
    probe = "import sys, palyra; print(any(m.startswith('palyra.client') or m == 'asyncio' for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout == "False\n"


def test_methods_keep_the_operations_names_and_documentation() -> None:
    assert Client.call.__doc__ == operations.call.__doc__
    assert inspect.iscoroutinefunction(AsyncClient.call) and not inspect.iscoroutinefunction(Client.call)


def test_a_bad_address_or_token_is_refused_before_anything_is_sent() -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(PlaintextRefused):
            kind("http://example.com")
        with pytest.raises(UnusableToken):
            kind(token="two words")


@pytest.fixture
def state(tmp_path: Path) -> Any:
    api = TinyApi()
    with serving(api.app) as url:
        (tmp_path / "daemon.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        (tmp_path / "operator.token").write_text(TOKEN + "\n")
        yield tmp_path


def test_local_speaks_to_the_daemon_of_the_state_directory(state: Path) -> None:
    with Client.local(state) as client:
        assert client.status().version == "1.2.3"


async def test_local_speaks_asynchronously_too(state: Path) -> None:
    async with AsyncClient.local(state) as client:
        assert (await client.status()).version == "1.2.3"


async def test_many_at_once_share_the_pool(state: Path) -> None:
    import asyncio

    async with AsyncClient.local(state) as client:
        calls = await asyncio.gather(*(client.call("echo", {"n": n}) for n in range(100)))
    assert [call.result for call in calls] == [{"n": n} for n in range(100)]


def test_threads_share_one_client(state: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Client.local(state) as client, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: client.call("echo", {"n": n}).result, range(50)))
    assert results == [{"n": n} for n in range(50)]

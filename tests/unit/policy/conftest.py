"""Bundles, engines and requests in one line each."""

from collections.abc import Callable
from typing import Any

import pytest

from palyra.ids import Principal
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.live_policy import load_bundle
from palyra.policy.request import EntityDirectory, PolicyRequest, tool_request

DIRECTORY = EntityDirectory.from_lists(
    principals=("agent:*", "user:*"),
    operators=("user:operator",),
    groups={"writers": ("agent:w*",)},
    tools=("echo", "fs.*"),
    preapproved=("fs.list",),
    channels=("cli", "api"),
)


@pytest.fixture
def directory() -> EntityDirectory:
    return DIRECTORY


@pytest.fixture
def bundle_of() -> Callable[..., Bundle]:
    """The defaults, and each text as a file: ``a.cedar``, ``b.cedar``, …"""

    def make(*texts: str, directory: EntityDirectory = DIRECTORY) -> Bundle:
        shipped = load_bundle(None, directory)
        named = tuple((f"{chr(ord('a') + index)}.cedar", text) for index, text in enumerate(texts))
        return Bundle(schema=shipped.schema, files=(*shipped.files, *named), directory=directory)

    return make


@pytest.fixture
def engine_of(bundle_of: Callable[..., Bundle]) -> Callable[..., CedarEngine]:
    return lambda *texts, **options: CedarEngine(bundle_of(*texts, **options))


@pytest.fixture
def ask() -> Callable[..., PolicyRequest]:
    """A request for ``tool.execute``; file tools are sensitive."""

    def make(
        principal: str = "agent:bot",
        tool: str = "echo",
        channel: str = "cli",
        *,
        directory: EntityDirectory = DIRECTORY,
        **context: Any,
    ) -> PolicyRequest:
        sensitive = tool.startswith("fs.")
        return tool_request(
            directory.principal(Principal.parse(principal)),
            directory.tool(tool, frozenset({"filesystem_write"} if sensitive else ()), sensitive, "builtin"),
            directory.channel(channel),
            **{"workspace": "/w", "run": "R", "argument_bytes": 2, **context},
        )

    return make

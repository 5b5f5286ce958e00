"""Palyra runs the tools of AI agents safely.

``palyra.Client`` and ``palyra.AsyncClient`` speak to a daemon; they are imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palyra.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from palyra.client import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

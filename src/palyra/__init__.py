"""Palyra runs the tools of AI agents safely.

``palyra.Client`` and ``palyra.AsyncClient`` speak to a daemon; they are imported on first use.
"""

# As type checkers read it. The real one would cost every command the import of typing.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from palyra.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> object:
    if name == "Client":
        from palyra.client.client import Client

        return Client
    if name == "AsyncClient":
        from palyra.client.client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""What a module of ``pages`` hands to the application: its page, what it lists as JSON, and what can be done on it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import Response

from palyra.console.roles import Role

if TYPE_CHECKING:
    from palyra.console.console import Console
    from palyra.console.visit import Visit

Show = Callable[["Console", "Visit"], Awaitable[dict[str, Any]]]
Act = Callable[["Console", "Visit", Any], Awaitable[Any]]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """``show`` returns what the template needs. ``live`` are beginnings of the kinds of journal events after which the
    page is fetched anew, and ``menu`` is its word in the menu; a page about one thing has none and names the ``above``
    it belongs to."""

    path: str
    template: str
    title: str
    show: Show
    menu: str = ""
    icon: str = ""
    above: str = ""
    live: tuple[str, ...] = ()
    role: Role = Role.VIEWER


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The same as JSON, under ``/console/v1``."""

    path: str
    show: Show
    role: Role = Role.VIEWER


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person does. ``name`` is the word for it in the journal; ``body`` the shape of its JSON.

    It is recorded before ``act`` is called, and what came of it afterwards. An answer that is ``shown_once`` is not
    kept for whoever asks again under the same Idempotency-Key.
    """

    path: str
    name: str
    act: Act
    body: type[msgspec.Struct]
    # What the description says of the body beyond its fields.
    body_rules: Mapping[str, Any] = {}
    method: str = "POST"
    role: Role = Role.OPERATOR
    shown_once: bool = False
    # Fields of the body that the journal does not keep: what a person types into a page may be a password.
    hides: tuple[str, ...] = ()


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or a stream of events. It is recorded like something done, since what is in it leaves the machine."""

    path: str
    name: str
    make: Callable[["Console", "Visit"], Awaitable[Response]]
    role: Role = Role.OPERATOR
    answers: Literal["file", "events"] = "file"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one module offers."""

    pages: tuple[Page, ...] = ()
    listings: tuple[Listing, ...] = ()
    writes: tuple[Write, ...] = ()
    downloads: tuple[Download, ...] = ()

"""Pages out of templates. Everything that is not markup of ours is escaped."""

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Self

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from palyra.clock import rfc3339
from palyra.pipeline.domain.receipt_text import format_size, is_exact, split_amounts
from palyra.server.console.errors import NoSuchPage
from palyra.server.console.event_text import REASONS, code_of, said, said_in_session
from palyra.server.console.limits import MAX_SHOWN_CHARS
from palyra.server.console.svg import bars, meter, span

# Stylesheet, scripts and icons, out of the package, under an address that changes with their content.

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGEST_CHARS = 16


class Assets(msgspec.Struct, frozen=True, kw_only=True):
    """``files`` by their names: what is not among them is not served, whatever the address says."""

    digest: str
    files: dict[str, bytes]

    @classmethod
    def load(cls) -> Self:
        found = {
            item.name: item.read_bytes()
            for item in sorted(files("palyra.server.console").joinpath("static").iterdir(), key=lambda item: item.name)
            if _suffix(item.name) in _MEDIA_TYPES
        }
        hasher = hashlib.sha256()
        for name, content in found.items():
            hasher.update(f"{name}:{len(content)}:".encode() + content)
        return cls(digest=hasher.hexdigest()[:_DIGEST_CHARS], files=found)

    def url(self, name: str) -> str:
        if name not in self.files:
            raise LookupError(f"there is no asset {name}")
        return f"/static/{self.digest}/{name}"

    async def serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.path_params["digest"] != self.digest or name not in self.files:
            raise NoSuchPage("there is no such file")
        return Response(
            self.files[name],
            headers={"Cache-Control": "public, max-age=31536000, immutable"},
            media_type=_MEDIA_TYPES[_suffix(name)],
        )


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]


_BUDGET_NAMES = {
    "wall_ms": "running time",
    "egress_bytes": "sent and received",
    "wasm_fuel": "WASM fuel",
    "max_network_bytes": "sent and received",
    "max_actions_per_session": "actions",
    "max_session_download_bytes": "downloaded",
    "max_session_downloads": "downloads",
    "max_tabs_per_session": "tabs",
}
_TRUST = {"allowlisted": "on the list of trusted ones", "pinned": "pinned", "first_use": "not known yet"}
_SCOPES = {"call": "make calls"}


def environment(assets: Assets) -> Environment:
    made = Environment(
        loader=PackageLoader("palyra.server.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(asset=assets.url, bars=bars, meter=meter, span=span)
    made.globals.update(said=said, code_of=code_of, said_in_session=said_in_session)
    made.filters.update(
        when=when,
        when_said=when_said,
        moment=moment,
        ticked=ticked,
        texts=texts,
        cedar_name=cedar_name,
        shown_json=shown_json,
        clipped=clipped,
        short_id=short_id,
        size=format_size,
        sized=sized,
        words=words,
        duration=duration,
        amount=amount,
        budget_name=budget_name,
        sentence=sentence,
        first_sentence=first_sentence,
        after_verdict=after_verdict,
        reason=lambda code: REASONS.get(code, code),
        trust=lambda level: _TRUST.get(level, level),
        scope=lambda name: _SCOPES.get(name, name),
        stamp=rfc3339,
        instant=_read_out,
    )
    return made


def when(instant_ms: int | None) -> Markup:
    """An instant. The page's script says how long ago that is; the whole is always there to point at."""
    if instant_ms is None:
        return Markup('<span class="muted">–</span>')
    return when_said(rfc3339(instant_ms))


def when_said(stamp: str) -> Markup:
    """The same for an instant that is written down already."""
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(stamp, _read_out(stamp))


def moment(instant_ms: int | None) -> Markup:
    """An instant of its own: to the second, and how long ago that is."""
    if instant_ms is None:
        return when(None)
    stamp = rfc3339(instant_ms)
    ago = Markup('<time datetime="{0}" data-ago></time>').format(stamp)
    return Markup('<span class="instant">{0}</span> <span class="muted">{1}</span>').format(_read_out(stamp), ago)


def _read_out(stamp: str) -> str:
    return f"{stamp[:10]} {stamp[11:19]} UTC"


def ticked(text: str) -> Markup:
    """What an error or a hint says, with what it sets in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def texts(value: Any) -> list[tuple[str, str]]:
    """Of an object, what is text of several lines: in JSON that is one long line."""
    if not isinstance(value, Mapping):
        return []
    return [(str(name), text) for name, text in value.items() if isinstance(text, str) and "\n" in text.strip("\n")]


def cedar_name(entity: str) -> str:
    """``Agent::"coder"`` as everything else calls it."""
    kind, quoted, name = entity.partition('::"')
    if not quoted:
        return entity
    return f"{kind.lower()}:{name[:-1]}" if kind in ("Agent", "User") else name[:-1]


def shown_json(value: Any) -> str:
    return clipped(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def clipped(text: str) -> str:
    """Control characters made visible, and no more than a page can bear."""
    plain = "".join(char if char >= " " or char in "\n\t" else f"\\x{ord(char):02x}" for char in text[:MAX_SHOWN_CHARS])
    return plain if len(text) <= MAX_SHOWN_CHARS else f"{plain}\n… {len(text) - MAX_SHOWN_CHARS} more characters"


def short_id(value: str) -> str:
    """The end of an id, which differs where the beginning, being the time, does not."""
    return value[-8:] if value else "–"


def sized(text: Any, layer: str) -> Markup:
    """What a receipt says, with its bytes in larger units; how many they are can be pointed at, or stands beside."""
    return Markup("").join(
        escape(each.text) if each.count is None else _sized(each.text, each.count)
        for each in split_amounts(layer, str(text))
    )


def _sized(text: str, count: int) -> Markup:
    shown = Markup('<span title="{}">{}</span>').format(text, format_size(count))
    return shown if is_exact(count) else shown + Markup(' <span class="muted">({:,})</span>').format(count)


def words(value: str) -> str:
    """``needs_approval`` as people write it."""
    return value.replace("_", " ")


def duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "–"
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1000:.1f} s"
    if milliseconds < 7_200_000:
        return f"{milliseconds / 60_000:.0f} min"
    return f"{milliseconds / 3_600_000:.1f} h"


def sentence(text: str) -> str:
    """What an error says, where it stands alone. What begins with a name, such as that of a host, keeps it as it is."""
    plain = text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
    return plain if plain.endswith((".", "?", "!")) else f"{plain}."


def after_verdict(text: str, verdict: str) -> str:
    """What is said after the verdict, which stands beside it already."""
    return text.removeprefix(f"{words(verdict)}: ")


def first_sentence(text: str) -> str:
    """The gist of what an author wrote; the rest stands where there is room."""
    head, stop, _ = text.partition(". ")
    return f"{head}." if stop else text


def amount(value: int, kind: str) -> str:
    """So much of a budget, in the unit that its name ends with."""
    if kind.endswith("_bytes"):
        return format_size(value)
    return duration(value) if kind.endswith("_ms") else f"{value:,}"


def budget_name(kind: str) -> str:
    """``wall_ms`` without its unit, which ``amount`` shows."""
    return words(_BUDGET_NAMES.get(kind, kind.removeprefix("max_").removesuffix("_ms")))


def query_of(given: Mapping[str, str], **changes: str | None) -> str:
    """The query of an address with some of it changed; what is empty is left out."""
    from urllib.parse import urlencode

    whole = {name: value for name, value in {**given, **changes}.items() if value}
    return f"?{urlencode(whole)}" if whole else "?"

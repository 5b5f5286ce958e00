"""Templates, their filters, and static assets. All text but our own markup is escaped."""

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
from palyra.server.console.event_text import REASONS, code_of, describe_event, describe_session_event
from palyra.server.console.limits import MAX_SHOWN_CHARS
from palyra.server.console.svg import bars, meter, span
from palyra.visible_text import escape_block, respell_json, spell, spell_block, spell_json, spell_json_text

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGEST_CHARS = 16


class Assets(msgspec.Struct, frozen=True, kw_only=True):
    """Stylesheet, scripts and icons by name, at an address that changes with their content. Nothing else is served."""

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
        finalize=_make_visible,
    )
    made.globals.update(asset=assets.url, bars=bars, meter=meter, span=span)
    made.globals.update(describe_event=describe_event, code_of=code_of, describe_session_event=describe_session_event)
    own = (
        *(
            when,
            when_said,
            moment,
            ticked,
            texts,
            cedar_name,
            shown_json,
            spell_json,
            respell_json,
            spell_block,
            spell,
            clipped,
            short_id,
            sized,
            words,
            duration,
        ),
        *(amount, budget_name, sentence, first_sentence, after_verdict),
    )
    made.filters.update({each.__name__: each for each in own})
    made.filters.update(
        size=format_size,
        reason=lambda code: REASONS.get(code, code),
        trust=lambda level: _TRUST.get(level, level),
        scope=lambda name: _SCOPES.get(name, name),
        stamp=rfc3339,
        instant=_read_out,
    )
    return made


def _make_visible(value: Any) -> Any:
    """Spell out what is invisible in all text that comes from outside, on whatever page it is shown."""
    return escape_block(value) if type(value) is str else value


def when(instant_ms: int | None) -> Markup:
    """Render an instant. The page's script shows its age; the whole is its tooltip."""
    if instant_ms is None:
        return Markup('<span class="muted">–</span>')
    return when_said(rfc3339(instant_ms))


def when_said(stamp: str) -> Markup:
    """Render an instant in the form of RFC 3339."""
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(stamp, _read_out(stamp))


def moment(instant_ms: int | None) -> Markup:
    """Render an instant to the second, with its age."""
    if instant_ms is None:
        return when(None)
    stamp = rfc3339(instant_ms)
    ago = Markup('<time datetime="{0}" data-ago></time>').format(stamp)
    return Markup('<span class="instant">{0}</span> <span class="muted">{1}</span>').format(_read_out(stamp), ago)


def _read_out(stamp: str) -> str:
    return f"{stamp[:10]} {stamp[11:19]} UTC"


def ticked(text: str) -> Markup:
    """Render the text of an error or hint, with parts in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def texts(value: Any) -> list[tuple[str, str]]:
    """Return the fields of an object whose text has several lines: in JSON each is one long line."""
    if not isinstance(value, Mapping):
        return []
    return [(str(name), text) for name, text in value.items() if isinstance(text, str) and "\n" in text.strip("\n")]


def cedar_name(entity: str) -> str:
    """Write ``Agent::"coder"`` as ``agent:coder``."""
    kind, quoted, name = entity.partition('::"')
    if not quoted:
        return entity
    return f"{kind.lower()}:{name[:-1]}" if kind in ("Agent", "User") else name[:-1]


def shown_json(value: Any) -> str:
    return _cut(spell_json_text(json.dumps(value, ensure_ascii=False, indent=2, default=str)))


def clipped(text: str) -> str:
    """Make every character visible, and cut the text to the size of a page. Not for what a person decides on."""
    return _cut(escape_block(text))


def _cut(text: str) -> str:
    more = len(text) - MAX_SHOWN_CHARS
    return text if more <= 0 else f"{text[:MAX_SHOWN_CHARS]}\n… {more} more characters"


def short_id(value: str) -> str:
    """Cut an id to its end: ids made at the same time have the same beginning."""
    return value[-8:] if value else "–"


def sized(text: Any, layer: str) -> Markup:
    """Write the byte counts of a receipt in larger units. The exact number is the tooltip, or beside it."""
    return Markup("").join(
        escape(each.text) if each.count is None else _sized(each.text, each.count)
        for each in split_amounts(layer, str(text))
    )


def _sized(text: str, count: int) -> Markup:
    shown = Markup('<span title="{}">{}</span>').format(text, format_size(count))
    return shown if is_exact(count) else shown + Markup(' <span class="muted">({:,})</span>').format(count)


def words(value: str) -> str:
    """Write ``needs_approval`` as ``needs approval``."""
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
    """Make a sentence of an error's text. A first word that is a name, such as a host, keeps its case."""
    plain = text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
    return plain if plain.endswith((".", "?", "!")) else f"{plain}."


def after_verdict(text: str, verdict: str) -> str:
    """Remove the verdict, which is beside the text already."""
    return text.removeprefix(f"{words(verdict)}: ")


def first_sentence(text: str) -> str:
    head, stop, _ = text.partition(". ")
    return f"{head}." if stop else text


def amount(value: int, kind: str) -> str:
    """Write an amount of a budget in the unit that its name ends with."""
    if kind.endswith("_bytes"):
        return format_size(value)
    return duration(value) if kind.endswith("_ms") else f"{value:,}"


def budget_name(kind: str) -> str:
    """Name a budget without its unit, which ``amount`` shows."""
    return words(_BUDGET_NAMES.get(kind, kind.removeprefix("max_").removesuffix("_ms")))


def query_of(given: Mapping[str, str], **changes: str | None) -> str:
    """Return the query of an address with changes, without empty parameters."""
    from urllib.parse import urlencode

    whole = {name: value for name, value in {**given, **changes}.items() if value}
    return f"?{urlencode(whole)}" if whole else "?"

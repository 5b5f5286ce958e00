"""Stylesheet, scripts and icons, out of the package, under an address that changes with their content."""

import hashlib
from importlib.resources import files
from typing import Self

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.console.errors import NoSuchPage

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
            for item in sorted(files("palyra.console").joinpath("static").iterdir(), key=lambda item: item.name)
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

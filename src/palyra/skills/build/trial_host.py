"""The host of a trial: storage in a folder or in memory, and requests.

Requests are answered from an example or, when the author grants the host, really sent.
"""

import http.client
import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from palyra.skills.build.project import BadProject, Exchange
from palyra.skills.limits import MAX_STORAGE_BYTES
from palyra.skills.package.capabilities import Capabilities, channel_meant, host_meant
from palyra.wasm.domain.grants import Grant
from palyra.wasm.domain.host_interface import GuestRequest, GuestResponse, HostRefusal, Status
from palyra.wasm.domain.outcome import LogLine

_SECONDS: Final = 10.0
_HTTPS: Final = 443


class LocalHost:
    """One object for one call. ``exchanges`` answer requests where given; else they are sent, over HTTPS.

    Requests of a trial do not pass the egress policy: the author has named the host on the command line.
    """

    def __init__(
        self,
        asked: Capabilities,
        *,
        stored: Mapping[str, bytes] | None = None,
        folder: Path | None = None,
        exchanges: Sequence[Exchange] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._requests = asked
        self._folder = folder
        self.stored = dict(stored or {}) if folder is None else _read_folder(folder)
        self._exchanges = None if exchanges is None else list(exchanges)
        self._secrets = dict(secrets or {})
        self.messages: list[tuple[str, str]] = []
        self.requests: list[tuple[str, str, str]] = []
        # Why a request came to nothing, for the author: the guest learns no more than its status.
        self.failures: list[str] = []

    @property
    def unused_exchanges(self) -> tuple[Exchange, ...]:
        return tuple(self._exchanges or ())

    async def http(self, grant: Grant, request: GuestRequest) -> GuestResponse:
        for attached in request.secrets:
            if not self._requests.may_carry_secrets(attached.header):
                self._note(grant.name, request, f"secret_headers of skill.toml does not name {attached.header}")
                raise HostRefusal(Status.DENIED)
        self.requests.append((grant.name, request.method, request.path))
        if self._exchanges is not None:
            for one in self._exchanges:
                if (one.host, one.method, one.path) == (grant.name, request.method, request.path):
                    self._exchanges.remove(one)
                    return GuestResponse(
                        status=one.status, headers=tuple(one.headers.items()), body=one.body.encode("utf-8")
                    )
            self._note(grant.name, request, "the example has no such request")
            raise HostRefusal(Status.UNAVAILABLE)
        import asyncio

        return await asyncio.to_thread(self._send, grant.name, request)

    def _send(self, granted: str, request: GuestRequest) -> GuestResponse:
        rule, path = host_meant(granted, request.path)
        headers = dict(request.headers)
        for attached in request.secrets:
            value = self._secrets.get(attached.secret.name)
            if value is None:
                self._note(granted, request, f"the trial has no value of {attached.secret.name}: see --secrets")
                raise HostRefusal(Status.NOT_FOUND)
            headers[attached.header] = attached.prefix + value
        connection = http.client.HTTPSConnection(
            rule.host, rule.port or _HTTPS, timeout=_SECONDS, context=ssl.create_default_context()
        )
        try:
            connection.request(request.method, path, request.body or None, headers)
            response = connection.getresponse()
            body = response.read(request.max_response_bytes + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The words of others may have a header's value in them, and with it a secret.
            self._note(granted, request, str(error) if isinstance(error, OSError) else type(error).__name__)
            raise HostRefusal(Status.UNAVAILABLE) from error
        finally:
            connection.close()
        if len(body) > request.max_response_bytes:
            raise HostRefusal(Status.TOO_LARGE)
        return GuestResponse(status=response.status, headers=tuple(response.getheaders()), body=body)

    def _note(self, granted: str, request: GuestRequest, why: str) -> None:
        self.failures.append(f"{request.method} {request.path} at {granted}: {why}")

    async def secret_reveal(self, grant: Grant) -> str:
        if grant.name not in self._requests.reveal_secrets:
            raise HostRefusal(Status.DENIED)
        if grant.name not in self._secrets:
            raise HostRefusal(Status.NOT_FOUND)
        return self._secrets[grant.name]

    async def storage_get(self, grant: Grant, key: str) -> bytes:
        try:
            return self.stored[f"{grant.name}/{key}"]
        except KeyError:
            raise HostRefusal(Status.NOT_FOUND) from None

    async def storage_put(self, grant: Grant, key: str, value: bytes) -> None:
        self._require_writable(grant)
        quota = self._requests.quotas.storage_bytes
        path = f"{grant.name}/{key}"
        others = sum(len(data) for name, data in self.stored.items() if name != path)
        if others + len(value) > (MAX_STORAGE_BYTES if quota is None else quota):
            raise HostRefusal(Status.QUOTA)
        self.stored[path] = value
        if self._folder is not None:
            place = self._folder / path
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(value)
            except OSError as error:
                raise HostRefusal(Status.FAILED) from error

    async def storage_delete(self, grant: Grant, key: str) -> None:
        self._require_writable(grant)
        path = f"{grant.name}/{key}"
        if self.stored.pop(path, None) is None:
            raise HostRefusal(Status.NOT_FOUND)
        if self._folder is not None:
            (self._folder / path).unlink(missing_ok=True)

    async def storage_list(self, grant: Grant, prefix: str) -> tuple[str, ...]:
        inside = (name.removeprefix(f"{grant.name}/") for name in self.stored if name.startswith(f"{grant.name}/"))
        return tuple(sorted(name for name in inside if name.startswith(prefix)))

    def _require_writable(self, grant: Grant) -> None:
        if grant.name not in self._requests.filesystem.write_roots:
            raise HostRefusal(Status.DENIED)

    async def channel_send(self, grant: Grant, text: str) -> None:
        self.messages.append(channel_meant(grant.name, text))

    def log(self, line: LogLine, *, was_cut: bool) -> LogLine:
        return line


def _read_folder(folder: Path) -> dict[str, bytes]:
    """Read what is stored.

    The folder came with the project: a link in it could lead a skill under trial out of its storage, and a device or
    pipe may never end or never begin.
    """
    found = {}
    left = MAX_STORAGE_BYTES
    there = (folder, *sorted(folder.rglob("*"))) if os.path.lexists(folder) else ()
    for path in there:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            what = "a link" if stat.S_ISLNK(status.st_mode) else "no file"
            raise BadProject(f"{path} is {what}; storage is made of ordinary files", hint="remove build/storage")
        left -= status.st_size
        if left < 0:
            raise BadProject(f"{folder} holds more than {MAX_STORAGE_BYTES} bytes", hint="remove build/storage")
        found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found

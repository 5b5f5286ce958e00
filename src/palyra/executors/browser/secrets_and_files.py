"""Supplies of a browser call: secrets of the vault, and files of the workspace."""

import asyncio
import base64
import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palyra.browser.domain.action import Action, Upload
from palyra.browser.domain.budget import TooLarge
from palyra.browser.domain.download import DownloadChanged, DownloadRecord, NoSuchDownload
from palyra.browser.settings import BrowserSettings
from palyra.egress.policy_judge import RevealsSecrets
from palyra.executors.browser import arguments as limits
from palyra.executors.browser.arguments import Step, fill_step
from palyra.executors.browser.policy_questions import bound_targets
from palyra.executors.browser.session_registry import OwnedSession
from palyra.executors.files import operations
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.policy.request import Entity
from palyra.secret import Secret
from palyra.vault.access import SecretUse
from palyra.vault.reference import SecretRef
from palyra.workspace.names import WorkspacePath
from palyra.workspace.root import Workspace, open_workspace, read_up_to

if TYPE_CHECKING:
    from palyra.browser.service.client import BrowserClient


class BrowserSupply:
    """``tool`` is browser.act as policies see it."""

    def __init__(
        self, settings: BrowserSettings, secrets: RevealsSecrets, protected_names: tuple[str, ...], tool: Entity
    ) -> None:
        self._settings = settings
        self._secrets = secrets
        self._protected = protected_names
        self._tool = tool

    async def fill(self, plan: ExecutionPlan, session: OwnedSession, steps: Sequence[Step]) -> tuple[Action, ...]:
        contents = await self._contents(plan, steps)
        actions = []
        for step in steps:
            if step.secret_ref:
                origins, value = await self._secret(plan, session, step.secret_ref)
                actions.append(fill_step(step, secret=value, origins=origins))
            elif step.paths:
                files = tuple(Upload(name=Path(path).name, content=contents[path]) for path in step.paths)
                actions.append(fill_step(step, files=files))
            else:
                actions.append(step.action)
        return tuple(actions)

    async def save(
        self, plan: ExecutionPlan, session: OwnedSession, client: "BrowserClient", records: Sequence[DownloadRecord]
    ) -> tuple[dict[str, Any], DownloadRecord]:
        wanted = plan.arguments["save"]
        record = next((each for each in records if each.id == wanted), None)
        if record is None:
            raise NoSuchDownload(f"this session has no download {wanted}")
        content = bytearray()
        async for chunk in client.read_download(session.caller(plan.call_id), session.session_id, record.id):
            content += chunk
        if hashlib.sha256(content).hexdigest() != record.digest:
            raise DownloadChanged(f"{record.id} is not the file that was checked")
        arguments = {
            "path": plan.arguments["path"],
            "content": base64.b64encode(content).decode(),
            "encoding": "base64",
            "mode": "overwrite" if plan.arguments.get("replace") else "create",
            "create_parents": True,
        }
        return await asyncio.to_thread(self._write, plan, arguments), record

    async def _secret(
        self, plan: ExecutionPlan, session: OwnedSession, secret_ref: str
    ) -> tuple[tuple[str, ...], Secret]:
        """Return the secret and the origins whose pages may get it. Vault and policy allowed each."""
        bound = bound_targets(self._settings, secret_ref, session.reach)
        value: Secret | None = None
        for _, target in bound:
            use = SecretUse(
                principal=session.principal,
                channel=plan.channel,
                run=plan.run_id,
                call=plan.call_id,
                tool=self._tool,
                host=target.host,
                port=target.port,
                approved=plan.approved,
            )
            value = await self._secrets.reveal(SecretRef.parse(secret_ref), use)
        assert value is not None
        return tuple(origin for origin, _ in bound), value

    async def _contents(self, plan: ExecutionPlan, steps: Sequence[Step]) -> dict[str, bytes]:
        paths = tuple(dict.fromkeys(path for step in steps for path in step.paths))
        return await asyncio.to_thread(self._read, plan, paths) if paths else {}

    def _read(self, plan: ExecutionPlan, paths: tuple[str, ...]) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        left = limits.MAX_UPLOAD_BYTES
        with self._workspace(plan) as workspace:
            for raw in paths:
                path = WorkspacePath.parse(raw)
                with workspace.open_file(path) as descriptor:
                    size = os.fstat(descriptor).st_size
                    content = read_up_to(descriptor, 0, left + 1, shown=path.render(), cancelled=threading.Event())
                if size > left or len(content) > left:
                    raise TooLarge(
                        f"{path.render()} makes more than the {limits.MAX_UPLOAD_BYTES} bytes that one call may upload"
                    )
                left -= len(content)
                contents[raw] = content
        return contents

    def _write(self, plan: ExecutionPlan, arguments: dict[str, Any]) -> dict[str, Any]:
        with self._workspace(plan) as workspace:
            return operations.write(arguments, workspace, threading.Event())

    def _workspace(self, plan: ExecutionPlan) -> Workspace:
        read_only = plan.obligations.read_only or False
        return open_workspace(Path(plan.workspace), self._protected, read_only=read_only, decided=plan.places)

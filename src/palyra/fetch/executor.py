"""The tool ``http.fetch`` for the broker. It keeps its own deadline and brings back what had come by then."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from palyra.clock import MS_PER_SECOND
from palyra.egress.events import Refused
from palyra.egress.grant import EgressGrant
from palyra.egress.refusal import EgressRefused
from palyra.errors import LimitExceeded, PalyraError
from palyra.fetch.client import Fetch, FetchClient, keeps_what_came
from palyra.fetch.limits import RENDER_THREADS
from palyra.fetch.ports import Frame
from palyra.fetch.request import FetchRequest
from palyra.fetch.result import build_result
from palyra.fetch.tool import EXECUTOR
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan, Outcome


class FetchTimedOut(LimitExceeded):
    code = "fetch.timed_out"
    hint = "ask for less with max_bytes, or for a longer timeout_ms within the call's deadline"
    http_status = 504


class FetchExecutor:
    """``frame_for`` says what a call may reach and by which way."""

    name = EXECUTOR
    keeps_deadline = True

    def __init__(self, client: FetchClient, frame_for: Callable[[ExecutionPlan, FetchRequest], Frame]) -> None:
        self._client = client
        self._frame_for = frame_for
        self._threads = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="palyra-fetch")

    async def execute(self, plan: ExecutionPlan) -> Outcome:
        request = FetchRequest.parse(plan.arguments)
        frame = self._frame_for(plan, request)
        grant = frame.grant
        fetch = self._client.fetch(frame, request)
        timeout_ms = min(plan.timeout_ms, request.timeout_ms or plan.timeout_ms)
        error: PalyraError | None = None
        try:
            async with asyncio.timeout(timeout_ms / MS_PER_SECOND):
                await fetch.run()
        except TimeoutError:
            error = FetchTimedOut(f"the fetch did not finish in {timeout_ms} ms")
        except PalyraError as failure:
            error = failure
            if isinstance(failure, EgressRefused):
                self._client.observer.happened(grant, Refused.of(failure, "fetch"))
        finally:
            # However it ends, and be it by cancelling, what went over the wire is charged.
            plan.usage.note(BudgetKind.EGRESS_BYTES, fetch.budget.spent)
        answer = fetch.answer
        if error is not None and (answer is None or not (isinstance(error, FetchTimedOut) or keeps_what_came(error))):
            raise error
        assert answer is not None
        result: dict[str, Any] = await asyncio.get_running_loop().run_in_executor(
            self._threads, build_result, answer, request.format, request.max_bytes, plan.max_output_bytes
        )
        fetch.note_redactions()
        return Outcome(result=result, receipt=_receipt(fetch, grant), error=error)

    def close(self) -> None:
        self._threads.shutdown(wait=True)


def _receipt(fetch: Fetch, grant: EgressGrant) -> tuple[dict[str, Any], ...]:
    secured = [each.tls for each in fetch.reached if each.tls]
    secrets = [f"{ref} to {each.authority}" for each in fetch.reached for ref in each.secrets]
    lines = [
        {
            "layer": "egress",
            "asked": "allowed hosts at judged addresses",
            "got": ", ".join(f"{each.authority} at {each.address}" for each in fetch.reached),
        },
        {
            "layer": "network bytes",
            "asked": f"at most {grant.max_bytes}",
            "got": str(fetch.budget.spent),
        },
    ]
    if secured:
        lines.append({"layer": "tls", "asked": "verified, 1.2 or later", "got": ", ".join(secured)})
    if secrets:
        lines.append({"layer": "credentials", "asked": "only where bound", "got": ", ".join(secrets)})
    return tuple(lines)

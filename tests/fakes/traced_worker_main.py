"""palyra-workerd with a trace: one line in a file for each time that a call begins to run on it, whoever asks later."""

import os
import sys
from typing import Any

from palyra.cli.workerd import main
from palyra.executors.worker.leased_calls import WorkerCalls


def _trace(path: str) -> None:
    perform = WorkerCalls.perform
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def traced(self: WorkerCalls, offer: Any, *arguments: Any) -> Any:
        os.write(descriptor, f"{offer.call_id} {offer.lease_id}\n".encode())
        return await perform(self, offer, *arguments)

    WorkerCalls.perform = traced  # type: ignore[method-assign]


if __name__ == "__main__":
    _trace(sys.argv.pop(1))
    main()

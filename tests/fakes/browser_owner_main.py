"""A daemon's part in small: starts a browser, says what runs, and waits to be killed. Run by tests as any user."""

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from fakes.browser_engine import launching
from palyra.browser.engine.process_inspection import descendants, start_time


async def main(folder: Path) -> None:
    async with launching(folder / "notes") as launcher:
        process = await launcher.start()
        processes = {pid: start_time(pid) for pid in descendants(process.pid)}
        receipt = process.receipt
        shown = msgspec.to_builtins(receipt)
        said = {"processes": processes, "held": receipt.held, "receipt": shown, "product": process.product}
        print(json.dumps(said), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await process.close(graceful=False)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

"""What every client hears of the server: its name, and a short guide."""

from typing import Final

NAME: Final = "palyra"
TITLE: Final = "Palyra"
INSTRUCTIONS: Final = """\
Palyra runs tools in sandboxes, under policies that the user wrote, and records every call.

- The tools listed are those you may call. Names use _ where Palyra's own documents use a dot: fs_read is fs.read.
- Files live in one workspace; paths are relative to it. Programs (process_run) take a program and its arguments: there
  is no shell, and interpreters may be refused. Programs have no network beyond the hosts that were allowed.
- "Denied" means policy says no: the same call will be denied again. The message says what would be allowed and which
  change a person could make. Choose another way, or tell the user.
- "needs a person's approval" means: ask the user to approve the id you were given, then make exactly the same call
  again. Changed arguments are another request.
- "Refused" or an error about limits tells which limit; ask for less, or narrow the call.
- Calls of one session share a run, with its budget of calls, time and bytes. Handles (background programs, browser
  sessions) work within that run. Every result has the run's and the call's id in its _meta.
- What happened is readable: palyra://runs/{run_id} is the timeline of your run, palyra://calls/{call_id} one
  call with its decision, what was enforced on it, and its signed statement.
- Secrets are put into requests on their way out. You never see them, and need not ask for them.
"""

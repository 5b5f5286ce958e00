"""The help of the whole program on a terminal of 80 columns or more. Written by generate_reference.py."""

TEXT = """\
Usage: palyra [OPTIONS] COMMAND [ARGS]...

  Run the tools of AI agents safely: authorised, contained, recorded.

  Exit codes: 0 done, 1 failed, 2 usage, 3 denied, 4 needs approval, 5 limit
  or timeout, 6 not available.

Options:
  --config FILE    Read settings from FILE.
  --state-dir DIR  Keep state in DIR.
  --no-color       Print without colour, as with NO_COLOR.
  --version        Print the version.
  --json           Print one JSON document.
  -h, --help       Show this message and exit.

Commands:
  up          Start everything embedded, in the foreground.
  tour        Walk through what Palyra does, with real calls.
  doctor      Show what this machine can enforce.
  run         Run one command in the sandbox, without a daemon.
  call        Make one tool call.
  tools       List and describe tools.
  approvals   See and decide what waits for a person.
  policy      Check, explain, test and replay policies.
  journal     Read, verify and export the record.
  egress      Ask where tools may go on the network.
  attest      Verify the signed statement of a call.
  vault       Keep secrets that agents can use and never see.
  skill       Install, review and approve signed WebAssembly tools.
  pair        Let a new device join.
  node        See and use devices, and be one.
  browser     Use a browser behind fences, look after its sessions.
  worker      See and direct the workers that calls run on.
  identity    See devices' certificates, replace their authority.
  token       Manage API tokens, each bound to a principal.
  mcp         Serve tools to an agent over stdin and stdout (MCP).
  bench       Measure how fast this machine is with Palyra.
  state       Back up and restore what Palyra keeps.
  config      Show settings and where they came from.
  completion  Print a shell's completion script.
"""

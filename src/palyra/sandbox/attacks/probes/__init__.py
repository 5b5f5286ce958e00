"""The attacking program. It runs inside the sandbox: standard library only, and any Python from 3.9 on."""

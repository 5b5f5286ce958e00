"""What this machine can enforce, found out by trying."""

"""Which Palyra this is. To ask the installation for it takes as long as the rest of a short command."""

VERSION = "0.1.0"

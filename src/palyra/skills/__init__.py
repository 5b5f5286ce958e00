"""Skills: signed archives of WebAssembly tools, and their life from a file to an entry in the catalog."""

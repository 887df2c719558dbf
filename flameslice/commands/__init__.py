"""One module per command: parse, call one function, write."""

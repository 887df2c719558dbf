"""One module per output format; a renderer knows results, never files or captures."""

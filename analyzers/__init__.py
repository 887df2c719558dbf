"""One module per question; each returns results with evidence and draws nothing."""

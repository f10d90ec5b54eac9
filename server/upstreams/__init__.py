"""Sources of completions behind one protocol: http, httpx2, replay."""

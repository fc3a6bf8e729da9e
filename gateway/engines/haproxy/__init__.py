"""HAProxy as an engine: the texts that it reads, and what is said to its runtime socket."""

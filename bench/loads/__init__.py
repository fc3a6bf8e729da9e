"""The loads: wrk, a constant rate, large bodies, idle connections, or none."""

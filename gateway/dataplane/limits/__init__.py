"""How much clients may use: admission, rates, requests in flight, retries, refusal while the loop is late.

The keys are declared in `core.fleet` (`limits`, `admission`). Bounds on single messages (`limits.head`,
`limits.body`) are enforced by their readers in `http1`; requests that wait for a backend belong to
`backends.queue`.
"""

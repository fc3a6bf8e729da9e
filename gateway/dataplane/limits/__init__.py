"""How much clients may use: admission, rates, requests in flight, retries, refusal while the loop is late.

Bounds on single messages (`limits.head`, `limits.body`) belong to their readers in `http1`; requests that
wait for a backend to `backends.queue`.
"""

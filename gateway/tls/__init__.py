"""TLS: certificates as files and values, and what OpenSSL is told about them, for listeners and for backends.

    values       what an operator says; imports neither `ssl` nor `cryptography`, so all of `settings` may
    certificate  files of certificates and keys: what is in them, and what is wrong with them
    server       which certificate a client is shown; certificates that change
    client       the contexts for backends, and why a handshake failed

What belongs here: all that reads a certificate or makes a context. `settings` checks files with it, so what
was checked is what runs. What does not: connections (`dataplane`, `admin`), the configuration file, and when
files are looked at again (`controlplane.certificate_watch`, `workers.worker_parts`).
"""

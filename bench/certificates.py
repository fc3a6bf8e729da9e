"""Certificates for 127.0.0.1, made when the bench begins: one with an ECDSA key and one with an RSA key."""

import subprocess
from pathlib import Path

from bench.processes import BenchError

KEYS = {"ecdsa": ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "rsa": ("-newkey", "rsa:2048")}


def make_certificates(directory: Path) -> None:
    """Write KIND.crt and KIND.key of every kind."""
    for kind, options in KEYS.items():
        files = ("-out", str(directory / f"{kind}.crt"), "-keyout", str(directory / f"{kind}.key"))
        names = ("-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1")
        command = ["openssl", "req", "-x509", "-nodes", "-days", "30", *options, *names, *files]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"openssl: {error}") from error
        if done.returncode != 0:
            raise BenchError(f"openssl made no certificate:\n{done.stderr}")

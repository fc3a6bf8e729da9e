"""Sends requests with the signatures of Chef clients, by each signing protocol. Prints one line of JSON.

It runs inside the clients' environment, which has `cryptography`, and imports nothing of this project. The
only argument is a JSON object: `endpoint`; `user`; `key` (a file); `calls`, each a GET as `{"path", "sign":
"1.0" | "1.1" | "1.3", "version": the signed and sent version, null for none, "sent": optional, the version to
send instead}`. The value of each call is `{"status", "version_field": an object or null, "body"}`.
"""

import base64
import datetime
import hashlib
import http.client
import json
import sys
import urllib.parse
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

HEADER = "X-Ops-Server-API-Version"
plan = json.loads(sys.argv[1])
key = serialization.load_pem_private_key(Path(plan["key"]).read_bytes(), None)


def digest(algorithm, text):
    return base64.b64encode(hashlib.new(algorithm, text.encode()).digest()).decode()


def sign_text(text):
    """Sign the padded text itself, without a digest, as protocols before 1.2 do."""
    numbers = key.private_numbers()
    modulus = numbers.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    filler = b"\xff" * (size - len(text) - 3)
    block = int.from_bytes(b"\x00\x01" + filler + b"\x00" + text.encode(), "big")
    return pow(block, numbers.d, modulus).to_bytes(size, "big")


def signed(path, sign, version):
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = plan["user"]
    if sign == "1.3":
        content = digest("sha256", "")
        lines = [
            "Method:GET",
            f"Path:{path}",
            f"X-Ops-Content-Hash:{content}",
            "X-Ops-Sign:version=1.3",
            f"X-Ops-Timestamp:{moment}",
            f"X-Ops-UserId:{user}",
            f"{HEADER}:{version or '0'}",
        ]
        signature = key.sign("\n".join(lines).encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        content = digest("sha1", "")
        lines = [
            "Method:GET",
            f"Hashed Path:{digest('sha1', path)}",
            f"X-Ops-Content-Hash:{content}",
            f"X-Ops-Timestamp:{moment}",
            f"X-Ops-UserId:{user if sign == '1.0' else digest('sha1', user)}",
        ]
        signature = sign_text("\n".join(lines))
    text = base64.b64encode(signature).decode()
    pieces = [text[start : start + 60] for start in range(0, len(text), 60)]
    return {
        "Accept": "application/json",
        "X-Chef-Version": "16.12.3",
        "X-Ops-Sign": f"algorithm={'sha256' if sign == '1.3' else 'sha1'};version={sign};",
        "X-Ops-Userid": user,
        "X-Ops-Timestamp": moment,
        "X-Ops-Content-Hash": content,
        **{f"X-Ops-Authorization-{number}": piece for number, piece in enumerate(pieces, 1)},
    }


def call(path, sign, version=None, sent=None):
    headers = signed(path, sign, version)
    if sent or version:
        headers[HEADER] = sent or version
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(plan["endpoint"]).netloc, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    text = response.headers[HEADER]
    field = None if text is None else json.loads(text)
    return {"status": response.status, "version_field": field, "body": body}


print(json.dumps({"results": [{"value": call(**arguments)} for arguments in plan["calls"]]}))

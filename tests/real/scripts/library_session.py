"""One client library, a list of calls, one line of JSON about what came of them.

Runs inside the libraries' environment, not the tests': nothing of this project is imported. The only
argument is a JSON object: `library`; `endpoint`; `version`, what the library is told to speak (null: its own
default); `calls`, names. A call that fails does not end the session: its entry is `{"error", "text"}`.
`version` of what is printed is the one that the library holds at the end.
"""

import json
import sys

plan = json.loads(sys.argv[1])
endpoint, version = plan["endpoint"], plan["version"]


def docker():
    import docker

    client = docker.DockerClient(base_url=endpoint.replace("http://", "tcp://"), version=version)
    return lambda: client.api._version, {
        "ping": client.ping,
        "containers": lambda: client.containers.list(sparse=True),
        "volume": lambda: client.volumes.create("data").name,
        "range": lambda: [client.version()[key] for key in ("MinAPIVersion", "ApiVersion")],
    }


def elasticsearch():
    from elasticsearch import Elasticsearch, __versionstr__

    client = Elasticsearch(endpoint, max_retries=0)
    documents = [{"index": {}}, {"item": 1}]
    replies = {
        "search": lambda: client.search(index="orders", query={"match_all": {}}),
        "index": lambda: client.index(index="orders", id="1", document={"item": 1}),
        "bulk": lambda: client.bulk(operations=documents, index=None),
        "info": client.info,
        "cat": client.cat.indices,
    }
    told = {name: lambda call=call: call().meta.headers["content-type"] for name, call in replies.items()}
    return lambda: __versionstr__, told


def pygithub():
    import github

    client = github.Github(base_url=endpoint, api_version=version, retry=None, seconds_between_requests=None)
    return lambda: version, {
        "user": lambda: client.get_user().login,
        "selected": lambda: client.requester.requestJsonAndCheck("GET", "/user")[0][
            "x-github-api-version-selected"
        ],
    }


def stripe():
    import stripe

    client = stripe.StripeClient(
        "sk_test_0", stripe_version=version, base_addresses={"api": endpoint}, max_network_retries=0
    )
    return lambda: stripe.api_version, {
        "balance": lambda: client.v1.balance.retrieve().last_response.headers["Stripe-Version"],
    }


made = {"docker": docker, "elasticsearch": elasticsearch, "pygithub": pygithub, "stripe": stripe}
held, results = None, []
try:
    held, calls = made[plan["library"]]()
except Exception as error:  # some libraries ask the server before the first call
    results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
    calls = {}
for call in plan["calls"] if calls else ():
    try:
        results.append({"value": calls[call]()})
    except Exception as error:  # whatever the library raises is the result
        results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
print(json.dumps({"results": results, "version": held and held()}))

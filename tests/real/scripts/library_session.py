"""Makes calls with one client library, as `session` says.

Of the plan also: `library`; `version`, the configured one (null: the library's own default). Its calls are
names. The printed `version` is the one of the library at the end.
"""

import socket

from session import plan, result_of, tell

endpoint, version = plan["endpoint"], plan["version"]


def docker():
    import docker
    from docker.utils.socket import frames_iter

    client = docker.DockerClient(base_url=endpoint.replace("http://", "tcp://"), version=version)

    container = "c1"

    def talk(stream):
        """Send input, end it, and read the output to its end, as (1 or 2, text)."""
        stream._sock.sendall(b"some input")
        stream._sock.shutdown(socket.SHUT_WR)
        return [[number, data.decode()] for number, data in frames_iter(stream, tty=False)]

    def attach():
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        return talk(client.containers.get(container).attach_socket(params=params))

    def attach_output():
        stream = client.containers.get(container).attach(stream=True)
        client.ping()  # then the container writes
        return b"".join(stream).decode()

    def exec_input():
        made = client.api.exec_create(container, ["cat"], stdin=True)
        return talk(client.api.exec_start(made["Id"], socket=True))

    def exec_output():
        made = client.api.exec_create(container, ["date"])
        stream = client.api.exec_start(made["Id"], stream=True, demux=True)
        client.ping()
        output = [[part and part.decode() for part in parts] for parts in stream]
        return output, client.api.exec_inspect(made["Id"])["ExitCode"]

    return lambda: client.api._version, {
        "ping": client.ping,
        "containers": lambda: client.containers.list(sparse=True),
        "volume": lambda: client.volumes.create("data").name,
        "attach": attach,
        "attach_output": attach_output,
        "exec": exec_input,
        "exec_output": exec_output,
        "range": lambda: [client.version()[key] for key in ("MinAPIVersion", "ApiVersion")],
    }


def elasticsearch():
    from elasticsearch import Elasticsearch, __versionstr__

    client = Elasticsearch(endpoint, max_retries=0)
    documents = [{"index": {}}, {"item": 1}]
    responses = {
        "search": lambda: client.search(index="orders", query={"match_all": {}}),
        "index": lambda: client.index(index="orders", id="1", document={"item": 1}),
        "bulk": lambda: client.bulk(operations=documents, index=None),
        "info": client.info,
        "cat": client.cat.indices,
    }
    media_types = {
        name: lambda call=call: call().meta.headers["content-type"] for name, call in responses.items()
    }
    return lambda: __versionstr__, media_types


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
begun = result_of(made[plan["library"]])  # some libraries send a request before the first call
if "error" in begun:
    tell([begun], version=None)
else:
    current, calls = begun["value"]
    tell([result_of(calls[call]) for call in plan["calls"]], version=current())

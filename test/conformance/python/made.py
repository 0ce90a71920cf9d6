"""Clients that are made by a call: from version 0.38 on, the call returns a future of the client."""

import tinker


def made(client):
    return client.result() if isinstance(client, tinker.APIFuture) else client

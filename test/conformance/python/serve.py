"""How a judge talks: one JSON command a line in, one JSON answer a line out."""

import json
import sys


def serve(commands):
    for line in sys.stdin:
        options = json.loads(line)
        try:
            answer = {"ok": commands[options.pop("command")](**options)}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)

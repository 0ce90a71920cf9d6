"""The judge: reads one JSON command a line, answers one JSON line. Run by wire.test.ts."""

import base64
import dataclasses
import importlib
import inspect
import json
import pathlib
import pkgutil
import sys
import warnings
from typing import get_args

warnings.simplefilter("ignore")

import messages
import pydantic
import tinker
from generate import Generator, base64_of
from tinker import types
from tinker._models import StrictBase
from tinker.proto import tinker_public_pb2 as pb


def all_types():
    found = {}
    for module in pkgutil.walk_packages(types.__path__, "tinker.types."):
        for kind in vars(importlib.import_module(module.name)).values():
            # The package's public names pretend to live in `tinker` itself.
            if inspect.isclass(kind) and kind.__module__.split(".")[0] == "tinker" and (
                issubclass(kind, pydantic.BaseModel) or dataclasses.is_dataclass(kind)
            ):
                found[id(kind)] = kind
    named = {}
    for kind in found.values():
        # Some names are both a pydantic model and a public dataclass.
        name = kind.__name__
        if name in named:
            older = named.pop(name)
            for each in (older, kind):
                named[name if dataclasses.is_dataclass(each) else f"{name}Model"] = each
        else:
            named[name] = kind
    for base in ("StrictBase", "BaseModel"):
        named.pop(base, None)
    return named


TYPES = all_types()


def wire_names(kind):
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    return list(kind.model_fields)


def message_names(descriptors):
    return {name: [[field.name, field.number, field.type, field.is_repeated]
                   for field in descriptor.fields] for name, descriptor in descriptors.items()}


def describe(_):
    return {
        "version": tinker.__version__,
        "types": {
            name: {
                "kind": "dataclass" if dataclasses.is_dataclass(kind) else "request" if issubclass(kind, StrictBase) else "response",
                "fields": wire_names(kind),
            }
            for name, kind in TYPES.items()
        },
        "messages": message_names(pb.DESCRIPTOR.message_types_by_name),
        "enums": {name: [[value.name, value.number] for value in enum.values] for name, enum in pb.DESCRIPTOR.enum_types_by_name.items()},
        "client_config": types.ClientConfigResponse().model_dump(),
        "dynamic_config": types.ClientDynamicConfigResponse().model_dump(),
        "loss_fns": list(types.LossFnType.__args__),
    }


def write(value, generator):
    """As the package's client sends it, or as some server may answer: with nulls, or without what was not set."""
    how = generator.random.choice([{"exclude_none": True}, {"exclude_unset": True}, {}]) if not isinstance(value, StrictBase) else {"exclude_none": True}
    return json.dumps(value.model_dump(mode="json", **how), ensure_ascii=generator.random.random() < 0.5)


GENERATED = {}


def generate(command):
    name, seed = command["type"], command["seed"]
    generator = Generator(seed)
    values = [generator.model(TYPES[name]) for _ in range(command["count"])]
    GENERATED[name] = values
    return [write(value, generator) for value in values]


def compare(command):
    """Whether what came back reads as the very value that was sent."""
    kind = TYPES[command["type"]]
    # The package leaves out what is None even where its own model requires it.
    absent = {name: None for name, field in kind.model_fields.items() if field.is_required() and type(None) in get_args(field.annotation)}
    failures = []
    for index, (value, body) in enumerate(zip(GENERATED.pop(command["type"]), command["bodies"], strict=True)):
        try:
            back = kind.model_validate(absent | json.loads(body))
        except Exception as error:
            failures.append([index, f"{body} is refused: {error}"])
            continue
        # A value left out and its default are the same to every reader.
        if back.model_dump() != value.model_dump():
            failures.append([index, f"sent {value!r}, came back as {back!r}"])
    return failures


def read(command):
    """Each body as the package's model reads it: all of it, or only what was in the body."""
    how = {} if command.get("full") else {"exclude_unset": True}
    answers = []
    for body in command["bodies"]:
        try:
            value = TYPES[command["type"]].model_validate(json.loads(body))
            answers.append({"value": value.model_dump(mode="json", **how)})
        except Exception as error:
            answers.append({"error": str(error)})
    return answers


MESSAGES = {"ForwardBackwardRequest": "request", "SampleResponse": "sample", "ForwardBackwardOutput": "output"}
READERS = {"SampleResponse": messages.read_sample, "ForwardBackwardOutput": messages.read_output}


def message_bodies(command):
    made = messages.Messages(Generator(command["seed"]))
    for _ in range(command["count"]):
        yield getattr(made, MESSAGES[command["type"]])()


def generate_messages(command):
    reader = READERS.get(command["type"])
    return [[base64_of(body), reader(body) if reader else None] for body in message_bodies(command)]


def read_messages(command):
    """Responses of ours, as the package reads them, and whether their bytes are the canonical ones."""
    answers = []
    for body in map(base64.b64decode, command["bodies"]):
        message = getattr(pb, command["type"])()
        message.ParseFromString(body)
        answers.append([READERS[command["type"]](body), messages.deterministic(message) == body])
    return answers


def encode_requests(command):
    return [[base64_of(messages.encode_request(plain)), messages.estimate(plain)] for plain in command["values"]]


def combine(command):
    answers = []
    for seed in range(command["seed"], command["seed"] + command["count"]):
        generator = Generator(seed)
        parts = [messages.Messages(Generator(seed * 1000 + part)).output() for part in range(generator.random.randint(2, 4))]
        try:
            answers.append([[base64_of(part) for part in parts], messages.combine(parts)])
        except ZeroDivisionError:
            answers.append([[base64_of(part) for part in parts], None])
    return answers


def mentions(command):
    """Which of these texts stand anywhere in the package's source."""
    folder = pathlib.Path(tinker.__file__).parent
    source = "\n".join(file.read_text() for file in folder.rglob("*.py") if not file.name.endswith("_test.py"))
    return [text in source for text in command["texts"]]


COMMANDS = {f.__name__: f for f in (describe, generate, compare, read, generate_messages, read_messages, encode_requests, combine, mentions)}

for line in sys.stdin.buffer:
    command = json.loads(line)
    try:
        answer = {"ok": COMMANDS[command["command"]](command)}
    except Exception as error:
        import traceback

        answer = {"failed": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()

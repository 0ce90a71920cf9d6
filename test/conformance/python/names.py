"""Every public name of the installed official packages, by owner, found by introspection. Prints one JSON line."""

import ast
import importlib.util
import inspect
import json
import os
import pathlib
import warnings

warnings.simplefilter("ignore")

import click
import tinker
import tinker.cli.__main__ as cli

CLIENTS = ["ServiceClient", "TrainingClient", "SamplingClient", "RestClient", "AdminClient", "APIFuture"]
# Types with methods of their own; the fields of all types are compared by wire.test.ts.
VALUES = ["Datum", "ModelInput", "TensorData"]


def methods(owner):
    """A method and its _async twin are one name."""
    return [name for name, _ in inspect.getmembers(owner) if not name.startswith("_") and not name.endswith("_async")]


def own_methods(owner):
    """Without fields, and without what pydantic adds to every model."""
    fields = {**getattr(owner, "model_fields", {}), **getattr(owner, "__dataclass_fields__", {})}
    return [name for name, value in vars(owner).items() if not name.startswith(("_", "model_")) and name not in fields]


def commands(group, context, path=()):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, context, (*path, name))
        elif not command.hidden:
            yield " ".join((*path, name))


def cookbook():
    """What the cookbook defines, by package and for settings by class: read, not imported, as it wants PyTorch."""
    package = importlib.util.find_spec("tinker_cookbook")
    if package is None:
        return
    root = pathlib.Path(package.submodule_search_locations[0])
    for room in ["rl", "tool_use", "preference", "distillation", "weights"]:
        names = set()
        for file in (root / room).rglob("*.py"):
            for node in ast.parse(file.read_text()).body:
                if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    continue
                names |= {node.name, f"{file.stem}.{node.name}"}
                if node.name == "Config":
                    fields = [field.target.id for field in node.body if isinstance(field, ast.AnnAssign)]
                    yield f"tinker_cookbook.{room}.{file.stem}.Config", fields
        yield f"tinker_cookbook.{room}", sorted(names)


group = next(value for value in vars(cli).values() if isinstance(value, click.Group))
names = {
    "tinker": [name for name in tinker.__all__ if not name.startswith("__")],
    "tinker.types": [name for name in vars(tinker.types) if not name.startswith("_")],
    "tinker.auth": tinker.auth.__all__,
    "tinker (command)": list(commands(group, click.Context(group))),
    **{f"tinker.{name}": methods(getattr(tinker, name)) for name in CLIENTS},
    **{f"tinker.{name}": own_methods(getattr(tinker, name)) for name in VALUES},
    **dict(cookbook()),
}
print(json.dumps(names), flush=True)
os._exit(0)

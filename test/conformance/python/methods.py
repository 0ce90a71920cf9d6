"""Calls every public method of the official clients, sync and async, against the server at TINKER_BASE_URL.

The methods are found by introspection, so a new one shows up as missing. Prints one JSON line: the matrix.
"""

import asyncio
import datetime
import inspect
import itertools
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

import tinker
from tinker import types
from tinker.lib.api_future_impl import QueueState

from download_tokenizer import download_tokenizer
from made import made

try:
    import torch
except ImportError:
    torch = None

MODEL = os.environ["MODEL"]
CLIENTS = [tinker.ServiceClient, tinker.TrainingClient, tinker.SamplingClient, tinker.RestClient, tinker.AdminClient]
HAS_TOKENS = bool(os.environ.get("HAS_TOKENS"))
PROMPT = types.ModelInput.from_ints([1, 2, 3, 4])
GREEDY = types.SamplingParams(max_tokens=2, temperature=0)
counter = itertools.count(1)


def fresh(name="checkpoint"):
    return f"{name}-{next(counter)}"


def datum(first=1):
    tokens = [first + offset for offset in range(6)]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens),
        loss_fn_inputs={"target_tokens": [token + 1 for token in tokens], "weights": [1.0] * 6},
    )


class World:
    """The clients, and things for their methods to work on."""

    def __init__(self):
        self.service = tinker.ServiceClient(user_metadata={"who": "methods"}, project_id="proj-a", display_name="Every method")
        self.session = self.service.holder.get_session_id()
        self.training = made(self.service.create_lora_training_client(base_model=MODEL, rank=4, seed=1))
        self.training.forward_backward([datum()], "cross_entropy").result()
        self.training.optim_step(types.AdamParams(learning_rate=0.01)).result()
        self.state = self.training.save_state(fresh()).result().path
        self.for_sampler = self.training.save_weights_for_sampler(fresh()).result().path
        self.external = self.training.save_weights_external(fresh()).result().path
        self.sampler = made(self.service.create_sampling_client(model_path=self.for_sampler))
        self.sampler.sample(PROMPT, 1, GREEDY).result()
        self.rest = tinker.RestClient()
        self.admin = tinker.AdminClient()

    def new_model(self):
        return made(self.service.create_lora_training_client(base_model=MODEL, rank=4))

    def new_state(self):
        return self.training.save_state(fresh()).result().path


def mean_loss(data, logprobs):
    loss = -sum(each.sum() for each in logprobs)
    return loss, {"mine": float(loss.detach())}


def new_loss():
    """A session takes each traced loss once."""
    scale = float(next(counter))

    def neg_ll(logprobs, weights):
        loss = -(logprobs * weights).sum() * scale
        return loss, {"custom/neg_ll:sum": loss}

    return neg_ll


def hours(world):
    hour = datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)
    return (hour - datetime.timedelta(hours=1), hour + datetime.timedelta(hours=1))


def is_trained(client):
    assert client.forward([datum()], "cross_entropy").result().metrics["loss:sum"] > 0


def is_sampler(client):
    assert len(client.sample(PROMPT, 1, GREEDY).result().sequences[0].tokens) >= 1


def is_pass(output):
    assert len(output.loss_fn_outputs) == 1 and output.metrics["loss:sum"] > 0


def is_path(kind):
    def check(response):
        path = response if isinstance(response, str) else response.path
        assert path.startswith("tinker://") and f"/{kind}/" in path, path

    return check


def is_none(value):
    assert value is None, value


def knows_words(tokenizer):
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


def anything(_):
    pass


# Method -> (arguments of a call, check of its result, the object whose method it is when not the usual one).
def calls(world):
    training, session = world.training, world.session
    sampled = lambda answer: (len(answer.sequences) == 2 and answer.sequences[0].sequence_id) or 1 / 0
    usage = {
        "get_audit_log": (lambda: ("checkpoints",), lambda log: log.entries or 1 / 0),
        "get_billing_usage": (lambda: hours(world), lambda usage: usage.data or 1 / 0),
        "get_current_checkpoint_storage_usage": (lambda: (), lambda usage: usage.data or 1 / 0),
        "get_telemetry": (lambda: (), anything),
    }
    custom = lambda loss: (lambda: ([datum()], loss()), is_pass)
    handle = lambda: world.service.create_custom_loss(new_loss(), {"logprobs": 1, "weights": 1}).result()
    return {
        "ServiceClient": {
            "close": (lambda: ("success",), is_none, lambda: tinker.ServiceClient()),
            "copy_weights": (lambda: (world.state,), is_path("weights")),
            "create_custom_loss": (lambda: (new_loss(), {"logprobs": 1, "weights": 1}), lambda made: made.name == "neg_ll" or 1 / 0),
            "create_lora_training_client": (lambda: (MODEL, 4), is_trained),
            "create_rest_client": (lambda: (), lambda rest: rest.list_sessions().result().sessions or 1 / 0),
            "create_sampling_client": (lambda: (world.for_sampler,), is_sampler),
            "create_training_client_from_state": (lambda: (world.state,), is_trained),
            "create_training_client_from_state_with_optimizer": (lambda: (world.state,), is_trained),
            "get_console_url": (lambda: (), lambda url: url.startswith("https://") or 1 / 0),
            "get_server_capabilities": (lambda: (), lambda found: MODEL in [model.model_name for model in found.supported_models] or 1 / 0),
            "get_telemetry": (lambda: (), anything),
        },
        "TrainingClient": {
            "create_sampling_client": (lambda: (world.for_sampler,), is_sampler),
            "forward": (lambda: ([datum()], "cross_entropy"), is_pass),
            "forward_backward": (lambda: ([datum()], "cross_entropy"), is_pass),
            "forward_backward_custom": custom(lambda: mean_loss), "forward_backward_custom (stored loss)": custom(handle),
            "get_console_url": (lambda: (), lambda url: url.startswith("https://") or 1 / 0),
            "get_info": (lambda: (), lambda info: info.lora_rank == 4 or 1 / 0),
            "get_telemetry": (lambda: (), anything),
            "get_tokenizer": (lambda: (), knows_words),
            "load_state": (lambda: (world.state,), anything, world.new_model),
            "load_state_with_optimizer": (lambda: (world.state,), anything, world.new_model),
            "optim_step": (lambda: (types.AdamParams(learning_rate=1e-3),), anything),
            "save_state": (lambda: (fresh(), 7200, False, {"a": "b"}), is_path("weights")),
            "save_weights_and_get_sampling_client": (lambda: (), is_sampler),
            "save_weights_external": (lambda: (fresh(),), is_path("external_weights")),
            "save_weights_for_sampler": (lambda: (fresh(),), is_path("sampler_weights")),
        },
        "SamplingClient": {
            "compute_logprobs": (lambda: (PROMPT,), lambda values: [value is None for value in values] == [True, False, False, False] or 1 / 0),
            "create": (lambda: (world.service.holder,), is_sampler, None, {"base_model": MODEL}),
            "from_sampler_handle": (lambda: (world.sampler.get_sampler_handle(),), is_sampler),
            "get_base_model": (lambda: (), lambda name: name == MODEL or 1 / 0),
            "get_sampler_handle": (lambda: (), lambda text: isinstance(text, str) or 1 / 0),
            "get_telemetry": (lambda: (), anything),
            "get_tokenizer": (lambda: (), knows_words),
            "on_queue_state_change": (lambda: (QueueState.ACTIVE, None), is_none),
            "sample": (lambda: (PROMPT, 2, GREEDY, True, 2, 2), sampled),
        },
        "RestClient": usage | {
            "assign_session_project": (lambda: (session, "proj-b"), is_none),
            "copy_weights": (lambda: (world.state, "proj-c"), is_path("weights")),
            "delete_checkpoint": (lambda: (training.model_id, world.new_state().split("/", 3)[3]), is_none),
            "delete_checkpoint_from_tinker_path": (lambda: (world.new_state(),), is_none),
            "export_session_trace": (lambda: (session,), lambda url: url.startswith("http") or 1 / 0),
            "get_external_weights_urls": (lambda: (world.external,), lambda found: found.urls or 1 / 0),
            "get_sampler": (lambda: (world.sampler._sampling_session_id,), lambda found: found.base_model == MODEL or 1 / 0),
            "get_server_capabilities": (lambda: (), lambda found: MODEL in [model.model_name for model in found.supported_models] or 1 / 0),
            "get_session": (lambda: (session,), lambda found: training.model_id in found.training_run_ids or 1 / 0),
            "get_training_run": (lambda: (training.model_id,), lambda run: run.lora_rank == 4 or 1 / 0),
            "get_training_run_by_tinker_path": (lambda: (world.state,), lambda run: run.training_run_id == training.model_id or 1 / 0),
            "get_weights_info_by_tinker_path": (lambda: (world.state,), lambda info: info.base_model == MODEL or 1 / 0),
            "list_checkpoints": (lambda: (training.model_id,), lambda found: found.checkpoints or 1 / 0),
            "list_sessions": (lambda: (), lambda found: session in found.sessions or 1 / 0),
            "list_training_runs": (lambda: (), lambda found: found.cursor.total_count or 1 / 0),
            "list_user_checkpoints": (lambda: (), lambda found: found.cursor.total_count or 1 / 0),
            "publish_checkpoint_from_tinker_path": (lambda: (world.new_state(),), is_none),
            "search_sessions": (
                lambda: (types.SessionSearchRequest(display_name="every"),), lambda found: session in [each.session_id for each in found.sessions] or 1 / 0,
            ),
            "set_checkpoint_ttl_from_tinker_path": (lambda: (world.state, 7200), is_none),
            "unpublish_checkpoint_from_tinker_path": (lambda: (published(world),), is_none),
            "whoami": (lambda: (), lambda found: found.user_urn or 1 / 0),
        },
        "AdminClient": usage,
    }


def published(world):
    path = world.new_state()
    world.rest.publish_checkpoint_from_tinker_path(path).result()
    return path


# What the package refuses before it asks the server anything, and why.
NEEDS_TORCH = {("TrainingClient", "forward_backward_custom"), ("ServiceClient", "create_custom_loss")}


def public_methods(client):
    return [name for name, _ in inspect.getmembers(client) if not name.startswith("_") and not name.endswith("_async")]


async def finished(value):
    """Futures of every kind, awaited."""
    while inspect.isawaitable(value):
        value = await value
    return value


async def matrix():
    # The model is on no hub.
    download_tokenizer(MODEL)
    # The synchronous forms must not run in an event loop, as in any program that uses them.
    world = await asyncio.to_thread(World)
    plan = await asyncio.to_thread(calls, world)
    usual = {
        "ServiceClient": world.service, "TrainingClient": world.training, "SamplingClient": world.sampler,
        "RestClient": world.rest, "AdminClient": world.admin,
    }
    rows = []
    for client in CLIENTS:
        known = plan[client.__name__]
        methods = public_methods(client)
        variants = [name for name in known if name.split(" ")[0] in methods and name not in methods]
        for label in methods + variants:
            row = {"client": client.__name__, "method": label}
            rows.append(row)
            name = label.split(" ")[0]
            if isinstance(inspect.getattr_static(client, name), property):
                getattr(usual[client.__name__], name)
                row["sync"] = "ok"
            elif label not in known:
                row["sync"] = "MISSING: no call of it here"
            elif torch is None and (client.__name__, name) in NEEDS_TORCH:
                row["sync"] = row["async"] = "not run: needs PyTorch"
            elif name == "whoami" and not HAS_TOKENS:
                row["sync"] = row["async"] = "not run: needs a server with tokens"
            else:
                row |= await both_forms(client, name, usual[client.__name__], *known[label])
        for name in [name for name, _ in inspect.getmembers(client) if name.endswith("_async") and not name.startswith("_")]:
            assert name.removesuffix("_async") in methods, f"{name} has no synchronous form"
    await asyncio.to_thread(lambda: world.service.close("success").result())
    return rows


async def both_forms(client, name, usual, arguments, check, target=None, options={}):
    target = target or (lambda: usual)

    def synchronously():
        value = getattr(target(), name)(*arguments(), **options)
        check(value.result() if hasattr(value, "result") else value)

    async def asynchronously():
        of, values = await asyncio.to_thread(lambda: (target(), arguments()))
        value = getattr(of, f"{name}_async" if hasattr(client, f"{name}_async") else name)(*values, **options)
        if not inspect.isawaitable(value):
            return "-"
        await asyncio.to_thread(check, await finished(value))

    return {"sync": await outcome(asyncio.to_thread(synchronously)), "async": await outcome(asynchronously())}


async def outcome(work):
    try:
        value = await asyncio.wait_for(work, 60)
        return value if value == "-" else "ok"
    except Exception as error:
        if "called from incorrect event loop" in str(error):
            return "package defect: only its own event loop may call it, so no request is sent"
        return f"FAILED: {type(error).__name__}: {str(error)[:300]}"


print(json.dumps({"version": tinker.__version__, "torch": torch is not None, "rows": asyncio.run(matrix())}))
sys.stdout.flush()
# Deprecated clients leave threads behind that nothing ends.
os._exit(0)

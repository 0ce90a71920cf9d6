"""Custom losses of the official package: 30 of them trained on the server and in the client, and graphs of ours rebuilt.

`train`: each loss trains two models that begin alike, one with the loss on the server and one with the package's own
client-side path; prints, for each, how far losses, metrics and the logprobs of the trained models are apart.
`rebuild FILE`: reads requests of ours, rebuilds their graphs with torch.fx and prints losses, metrics and gradients.
"""

import dataclasses
import importlib
import json
import os
import sys
import warnings

import torch
import torch.fx
from tinker import types
from tinker.types.create_custom_loss_request import CreateCustomLossRequest

sys.path.append(os.path.join(os.path.dirname(__file__), "../../../scripts/golden"))
warnings.filterwarnings("ignore")

STEPS = 3
TOKENS = 16
COLUMNS = 3
EXPRESSIONS = [
    ("torch.sqrt(-x)", 1), ("F.softplus(x, beta=2.0)", 1), ("torch.where(w > 0, x, torch.zeros_like(x))", 1),
    ("x.masked_fill(w == 0, 0.5)", 1), ("torch.lerp(x, q, 0.3)", 1), ("torch.std(x, dim=-1, keepdim=True)", 1),
    ("x.cumsum(0)", 1), ("x[w > 0]", 1), ("x[:-1] - x[1:]", 1), ("torch.stack([x, q])", 1),
    ("F.huber_loss(x, q, delta=0.1)", 1), ("torch.gather(x, 0, ids)", 1), ("torch.einsum('i,j->ij', x, q)", 1),
    ("x - torch.logsumexp(x, dim=-1, keepdim=True)", 2), ("F.softmax(x, dim=-1)", 2), ("x.sum(dim=(0, 1))", 2),
    ("torch.max(x, dim=-1).values", 2), ("x @ q.T", 2), ("x.topk(2).values", 2), ("torch.logaddexp(x, q)", 2),
]


def value_for(name, rank, generator, columns):
    shape = {0: (), 1: (TOKENS,), 2: (TOKENS, columns)}[rank]
    if name == "ids":
        return torch.randint(0, TOKENS if rank == 1 else columns, shape, generator=generator)
    value = torch.rand(shape, generator=generator)
    if name in ("w", "mask", "weights"):
        return torch.where(value > 0.3, value, torch.zeros(())) if name != "mask" else (value > 0.3).float()
    if name == "sign":
        return torch.tensor(1.0 if value > 0.5 else -1.0)
    return value - 0.5 if name == "advantages" else value if name == "a" else -3 * value - 0.1


def datum(ranks, seed):
    generator = torch.Generator().manual_seed(seed)
    columns = COLUMNS if ranks["logprobs"] == 2 else 1
    shape = (TOKENS, COLUMNS) if ranks["logprobs"] == 2 else (TOKENS,)
    inputs = {"target_tokens": torch.randint(0, 60, shape, generator=generator)}
    for name, rank in list(ranks.items())[1:]:
        inputs[name] = value_for(name, rank, generator, columns)
    tokens = torch.randint(0, 60, (TOKENS,), generator=generator)
    return types.Datum(model_input=types.ModelInput.from_ints(tokens.tolist()), loss_fn_inputs=inputs)


def apart(left, right):
    return max((abs(a - b) / max(1.0, abs(b)) for a, b in zip(left, right, strict=True)), default=0.0)


TO_TORCH = types.TensorData.to_torch


def compute_in(dtype):
    """The dtype of the package's client-side path: it makes logprobs of the default one, and inputs of their own."""
    torch.set_default_dtype(dtype)

    def to_torch(self):
        tensor = TO_TORCH(self)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    types.TensorData.to_torch = to_torch


def train():
    import tinker

    golden = importlib.import_module("make_custom_loss_fixtures")
    losses = [(fn.__name__, fn, ranks) for fn, ranks in golden.LOSSES]
    for expression, rank in EXPRESSIONS:
        losses.append((expression, golden.of_expression(expression, rank), {"logprobs": rank, "w": rank, "q": rank, "ids": rank, "a": 0}))
    service = tinker.ServiceClient()

    def model():
        made = service.create_lora_training_client(base_model=os.environ["MODEL"], rank=4, seed=7)
        return made.result() if hasattr(made, "result") else made

    rows = []
    for number, (name, fn, ranks) in enumerate(losses):
        stored = service.create_custom_loss(fn, ranks).result()
        assert stored.loss_id is not None
        data = [[datum(ranks, 100 * number + 10 * step + place) for place in range(3)] for step in range(STEPS)]
        logprobs, results = [], []
        client_side = dataclasses.replace(stored, loss_id=None)
        # The package computes in float32 where torch does; in float64 it rounds as little as the server.
        for handle, dtype in ((stored, torch.float32), (client_side, torch.float64), (client_side, torch.float32)):
            compute_in(dtype)
            training = model()
            metrics = []
            for batch in data:
                future = training.forward_backward_custom(batch, handle)
                training.optim_step(types.AdamParams(learning_rate=1e-3)).result()
                metrics.append(future.result().metrics)
            results.append(metrics)
            scored = training.forward([datum({"logprobs": 1}, 5)], "cross_entropy").result()
            logprobs.append(scored.loss_fn_outputs[0]["logprobs"].data)
        compute_in(torch.float32)
        on_server, *in_client = results
        row = {"name": name, "logprobs": apart(logprobs[0], logprobs[1])}
        for key, steps in zip(("float64", "float32"), in_client, strict=True):
            names = [set(step) - {"surrogate_loss:sum"} for step in steps]
            assert names == [set(step) for step in on_server], (name, names)
            row[key] = [apart([step[each] for each in sorted(own)], [other[each] for each in sorted(own)])
                        for step, other, own in zip(on_server, steps, names, strict=True)]
        rows.append(row)
    print(json.dumps({"rows": rows, "torch": torch.__version__}))


# --- graphs of ours ---

def decode(arg, env):
    if isinstance(arg, list):
        return [decode(each, env) for each in arg]
    if not isinstance(arg, dict):
        return arg
    ((kind, content),) = arg.items()
    if kind == "ref":
        return env[content]
    if kind == "tuple":
        return tuple(decode(content, env))
    if kind == "dict":
        return {key: decode(value, env) for key, value in content.items()}
    if kind == "slice":
        return slice(*decode(content, env))
    if kind == "ellipsis":
        return ...
    if kind == "float":
        return float(content)
    return getattr(torch, content)


def function(target):
    module, name = target.rsplit(".", 1)
    found = importlib.import_module(module.split(".")[0])
    for part in module.split(".")[1:]:
        found = getattr(found, part)
    return getattr(found, name)


def rebuild(path):
    answers = []
    for line in open(path, encoding="utf8"):
        entry = json.loads(line)
        request = CreateCustomLossRequest.model_validate(entry["request"])
        graph, env = torch.fx.Graph(), {}
        for node in request.graph.nodes:
            args = tuple(decode(arg, env) for arg in node.args)
            kwargs = {key: decode(arg, env) for key, arg in node.kwargs.items()}
            target = function(node.target) if node.op == "call_function" else node.target
            env[node.name] = graph.create_node(node.op, target, args, kwargs)
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        values = [torch.tensor(each["data"], dtype=torch.int64 if each["dtype"] == "int64" else torch.float64).reshape(each["shape"])
                  for each in entry["values"]]
        logprobs = values[0].requires_grad_(True)
        loss, metrics = module(logprobs, *values[1:])
        assert loss.ndim == 0
        (gradient,) = torch.autograd.grad(loss, [logprobs])
        answers.append({"loss": loss.item(), "metrics": {key: value.item() for key, value in metrics.items()},
                        "gradient": gradient.reshape(-1).tolist()})
    print(json.dumps(answers))


if sys.argv[1:2] == ["rebuild"]:
    rebuild(sys.argv[2])
else:
    train()

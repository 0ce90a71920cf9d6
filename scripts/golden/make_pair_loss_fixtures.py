"""Losses over pairs of answers with their gradients, by real torch and the Python cookbook's own DPO:
pip install torch tinker-cookbook, then npm run generate:golden:pair-losses
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).parents[2] / "test/conformance/python/shims"))

from tinker_cookbook.preference.train_dpo import compute_dpo_loss

PAIRS = 5
generator = torch.Generator().manual_seed(7)


def answer(place):
    length = 3 + (place * 5) % 4
    draw = lambda: (-3 * torch.rand(length, generator=generator)).float()
    weights = torch.tensor([0.0] * (1 + place % 2) + [1.0] * (length - 1 - place % 2))
    return {"logprobs": draw(), "reference": draw(), "weights": weights}


data = [answer(place) for place in range(2 * PAIRS)]
for each in data:
    each["logprobs"].requires_grad_(True)


def sums(name, places):
    return [torch.dot(data[place][name], data[place]["weights"]) for place in places]


def gains(places):
    return torch.stack(sums("logprobs", places)) - torch.stack(sums("reference", places))


def lengths(places):
    return torch.stack([data[place]["weights"].sum() for place in places])


CHOSEN, REJECTED = range(0, 2 * PAIRS, 2), range(1, 2 * PAIRS, 2)
TIES = [0, 0, 1, 0, 1]


def upstream(beta):
    return compute_dpo_loss(sums("logprobs", CHOSEN), sums("logprobs", REJECTED),
                            sums("reference", CHOSEN), sums("reference", REJECTED), beta)


def soft(beta, smoothing, ties):
    """Binary cross entropy against how sure the labels are."""
    sure = torch.tensor([0.5 if tie else 1 - smoothing for tie in ties])
    return F.binary_cross_entropy_with_logits(beta * (gains(CHOSEN) - gains(REJECTED)), sure), {}


def ipo(beta):
    margins = gains(CHOSEN) / lengths(CHOSEN) - gains(REJECTED) / lengths(REJECTED)
    return F.mse_loss(margins, torch.full((PAIRS,), 1 / (2 * beta))), {}


def simpo(beta, gamma):
    mean = lambda places: torch.stack(sums("logprobs", places)) / lengths(places)
    return F.softplus(gamma - beta * (mean(CHOSEN) - mean(REJECTED))).mean(), {}


def vector(loss, options, made, ties=None):
    value, metrics = made
    gradients = torch.autograd.grad(value, [each["logprobs"] for each in data])
    return {"loss": loss, "options": options, **({"ties": ties} if ties else {}), "value": value.item(),
            "metrics": metrics, "gradients": [each.tolist() for each in gradients]}


vectors = [
    vector("dpo", {"beta": 0.1}, upstream(0.1)),
    vector("dpo", {"beta": 2.5}, upstream(2.5)),
    vector("dpo", {"beta": 0.5, "labelSmoothing": 0.1}, soft(0.5, 0.1, [0] * PAIRS)),
    vector("dpo", {"beta": 0.5}, soft(0.5, 0, TIES), TIES),
    vector("ipo", {"beta": 0.3}, ipo(0.3)),
    vector("simpo", {"beta": 2, "targetMargin": 1}, simpo(2, 1)),
]
made = {
    "torch": torch.__version__,
    "data": [{name: values.tolist() for name, values in each.items()} for each in data],
    "vectors": vectors,
}
Path(sys.argv[1]).write_text(json.dumps(made) + "\n")

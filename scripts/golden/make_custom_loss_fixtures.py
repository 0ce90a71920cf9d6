"""Makes test/fixtures/losses/custom-graphs.json: custom losses traced by the official package, and what torch.fx computes
with them in float64: loss, metrics and gradient.  Usage: npm run generate:golden:custom-losses"""

import json
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from tinker.lib.public_interfaces.custom_loss import encode_graph, trace_loss

INPUTS = {
    1: {
        "logprobs": torch.tensor([-0.31, -1.72, -0.05, -2.4, -0.93, -1.11], dtype=torch.float64),
        "w": torch.tensor([0.0, 1.0, 0.5, 0.0, 2.0, 1.0], dtype=torch.float64),
        "q": torch.tensor([-0.42, -1.5, -0.21, -2.3, -0.93, -0.7], dtype=torch.float64),
        "ids": torch.tensor([3, 0, 5, 1, 1, 2]),
        "a": torch.tensor(0.75, dtype=torch.float64),
    },
    2: {
        "logprobs": torch.tensor([[-0.3, -1.6, -2.9], [-0.9, -1.2, -1.4], [-3.1, -0.2, -2.2], [-0.6, -1.9, -1.05]], dtype=torch.float64),
        "w": torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0], [0.2, 0.7, 0.1]], dtype=torch.float64),
        "q": torch.tensor([[-0.5, -1.1, -2.5], [-0.8, -1.3, -1.5], [-2.1, -0.4, -1.2], [-0.7, -1.8, -1.1]], dtype=torch.float64),
        "ids": torch.tensor([[2, 0, 1], [0, 1, 2], [1, 1, 1], [2, 2, 0]]),
        "a": torch.tensor(0.75, dtype=torch.float64),
    },
}

# Each is computed, then summed with weights of its own so that no gradient is lost in a symmetry.
BOTH_RANKS = """
-x
abs(x)
x.abs()
x + w
x - 2 * w
1 - x
x * w
x / (w + 1)
1 / (x - 1)
x % 0.7
torch.fmod(x, 0.7)
torch.remainder(x, w + 0.3)
x ** 2
(-x) ** 1.5
2 ** x
torch.pow(x, 3)
(-x) ** w
x.add(w, alpha=2)
torch.sub(x, w, alpha=0.5)
torch.rsub(x, 1)
torch.div(x, 0.3, rounding_mode="floor") * x
torch.true_divide(x, 3)
x.exp()
torch.exp(x - q)
torch.exp2(x)
torch.expm1(x)
torch.log(-x)
torch.log1p(w) * x
torch.log2(-x)
torch.log10(-x)
torch.sqrt(-x)
torch.rsqrt(-x)
torch.square(x)
torch.reciprocal(x)
torch.sin(x) + torch.cos(x)
torch.tanh(x)
torch.sigmoid(x)
torch.special.expit(x)
torch.logit(torch.exp(x))
torch.erf(x)
F.logsigmoid(x)
F.softplus(x)
F.softplus(x, beta=2.0)
F.softplus(x * 30)
F.relu(x + 1)
torch.relu(x + 1)
F.relu6(x + 1)
F.leaky_relu(x + 1, 0.1)
F.elu(x + 1)
F.hardtanh(x)
F.silu(x)
F.mish(x)
F.softsign(x)
F.gelu(x, approximate="tanh")
F.gelu(x)
F.sigmoid(x) * F.tanh(x)
torch.ceil(x) * x
torch.floor(x) * x
torch.round(x) * x
torch.trunc(x) * x
torch.frac(x)
torch.sign(x) * x
torch.minimum(x, q)
torch.maximum(x, q)
torch.fmax(x, q)
torch.min(x, q)
torch.max(x, q)
torch.clamp(x, -1.0, -0.2)
torch.clamp(x, min=-1.0)
x.clamp(max=q)
x.clamp_min(-1)
x.clamp_min(-0.93)
x.clamp_max(q - 0.001)
x.clamp(min=q)
(x // 0.4).detach() * x
torch.split(x, [1, 2, x_size - 3], dim=0)[1]
torch.clip(x, -1, -0.2)
torch.where(x > q, x, 0.0)
torch.where(w > 0, x, torch.zeros_like(x))
torch.where(w > 0, 1.0, x)
x.where(w > 0, q)
x.masked_fill(w == 0, 0.5)
(x > -1).float() * x
(x >= q) * x
x.lt(-1) * x + x.le(-1) * x * x
torch.ge(x, q).double() * x
torch.ne(w, 0) * x
((w > 0) & (x < -0.5)) * x
((w > 0) | (x < -0.5)) * x
((w > 0) ^ (x < -0.5)) * x
(~(w > 0)) * x
torch.logical_and(w, x > -1) * x
torch.logical_not(w) * x
torch.isfinite(x) * x
torch.nan_to_num(torch.where(w > 0, x, float("inf")), posinf=2.0)
torch.lerp(x, q, 0.3)
torch.addcmul(x, x, w, value=0.5)
torch.addcdiv(x, x, w + 1, value=0.5)
torch.logaddexp(x, q)
torch.xlogy(w, -x)
torch.special.entr(torch.exp(x))
torch.hypot(x, q)
x.detach() * x
torch.exp(x - x.detach()) * w
x.to(torch.float64) * 2
x.to("cpu").contiguous().clone()
x.type_as(q)
w.long() * x
w.bool() * x
w.int().float() * x
x.sum()
x.sum(0)
x.sum(dim=-1, keepdim=True)
x.sum(-1, True)
torch.sum(x, (0,))
torch.sum(x, dim=[0]) * 2
torch.nansum(x)
x.mean()
x.mean(0)
torch.mean(x, dim=-1, keepdim=True)
torch.prod(x)
x.prod(-1)
x.std()
x.var(unbiased=False)
torch.var(x, dim=0, correction=0)
torch.std(x, dim=-1, keepdim=True)
torch.var(x, -1)
x.norm()
x.norm(p=1, dim=-1)
torch.linalg.norm(x, dim=0)
torch.linalg.vector_norm(x, ord=3)
torch.linalg.vector_norm(x, ord=float("inf"))
torch.max(x)
x.min()
torch.max(x, dim=0).values
torch.max(x, 0)[0]
x.max(dim=-1, keepdim=True)[0]
x.min(-1).values
x.amax(-1)
torch.amin(x, dim=0, keepdim=True)
x.argmax() * x
x.argmin(-1, keepdim=True) * x
torch.logsumexp(x, dim=-1)
torch.special.logsumexp(x, dim=0)
torch.softmax(x, 0)
F.softmax(x, dim=-1)
x.softmax(-1)
F.log_softmax(x, dim=-1)
torch.log_softmax(x, dim=0)
F.softmin(x, dim=0)
x.cumsum(0)
torch.cumsum(x, dim=-1)
torch.logcumsumexp(x, 0)
(w != 0).any() * x
torch.all(w > 0, dim=-1, keepdim=True) * x
torch.count_nonzero(w) * x
x / w.count_nonzero()
(w > 0).sum() * x
(x * w).sum() / w.sum().clamp(min=1)
(x * w).sum() / torch.clamp(w.sum(), min=1e-8)
x.reshape(-1)
x.view(-1, 1)
x.view(x.size(0), -1)
x.reshape(x.shape[0], -1).mean(1)
x.flatten()
x.ravel()
x.unsqueeze(-1)
x.unsqueeze(0).squeeze(0)
x.unsqueeze(-1).expand(*([-1] * (x_rank + 1)))
x.unsqueeze(0).expand(3, *([-1] * x_rank))
x.repeat(2, *([1] * x_rank))
x.tile(2)
torch.repeat_interleave(x, 2, dim=0)
x.repeat_interleave(3)
x.flip(0)
torch.flip(x, [-1])
torch.roll(x, 1)
torch.roll(x, -1, 0)
x.narrow(0, 1, 2)
x.select(0, 1)
torch.chunk(x, 2)[0]
torch.split(x, 3)[0]
torch.unbind(x)[1]
torch.stack([x, q])
torch.stack((x, q), dim=-1).sum(-1)
torch.cat([x, q], dim=0)
torch.cat((x, x * w), -1)
torch.diff(x)
F.pad(x, (1, 2))
F.pad(x, (0, 1), value=2.0) ** 2
torch.gather(x, 0, ids % 4)
torch.gather(x, -1, ids % 3)
x.gather(-1, torch.argmax(x, dim=-1, keepdim=True))
torch.take_along_dim(x, ids % 3, -1)
torch.index_select(x, 0, ids.view(-1) % 4)
x.masked_select(w > 0)
x[w > 0]
x[w.bool()].mean()
x[0]
x[-1]
x[1:]
x[:-1] - x[1:]
x[::2]
x[..., 1:]
x[..., -1]
x[..., None]
x[None]
x[[0, 2]]
x[ids % 4]
x.sort()[0]
torch.sort(x, dim=0, descending=True).values
x.topk(2).values
torch.topk(x, 2, dim=0, largest=False)[0]
x[torch.argsort(x, dim=0)] if x_rank == 1 else x
torch.median(x)
torch.zeros_like(x) + x
torch.ones_like(x) * x
torch.full_like(x, 2.0) * x
x.new_zeros(1) + x
x.new_full((1,), 0.5) * x
x.new_tensor([1.5]) * x
torch.ones(x.shape[0]).sum() * x
torch.arange(x.shape[-1], device=x.device) * x
torch.arange(1, x.size(-1) + 1, dtype=x.dtype) * x
F.mse_loss(x, q)
F.mse_loss(x, q, reduction="sum")
F.l1_loss(x, q, reduction="none")
F.smooth_l1_loss(x, q, beta=0.5)
F.huber_loss(x, q, delta=0.1)
F.kl_div(x, torch.exp(q), reduction="sum")
F.kl_div(x, w, reduction="sum")
F.kl_div(x, q, reduction="batchmean", log_target=True)
F.binary_cross_entropy_with_logits(x, w.clamp(max=1))
F.binary_cross_entropy(torch.exp(x), w.clamp(max=1))
F.normalize(x, dim=0)
F.cosine_similarity(x, q, dim=0)
torch.dist(x, q)
x.numel() * x
x.dim() * x + x.ndim
x.nelement() * x / x.shape[0]
math.sqrt(2.0) * x
a * x
x * a.exp()
x.outer(q) if x_rank == 1 else x @ q.T
x @ q if x_rank == 1 else x.matmul(q.t())
torch.dot(x, q) if x_rank == 1 else torch.mm(x.transpose(0, 1), q)
torch.matmul(x.unsqueeze(0), q.unsqueeze(-1)) if x_rank == 1 else torch.bmm(x.unsqueeze(0), q.mT.unsqueeze(0))
torch.einsum("i,i->", x, q) if x_rank == 1 else torch.einsum("tk,tk->t", x, q)
torch.einsum("i,j->ij", x, q) if x_rank == 1 else torch.einsum("tk,sk->ts", x, q)
torch.tril(x.unsqueeze(0) * q.unsqueeze(1)) if x_rank == 1 else torch.triu(x, 1)
F.one_hot(ids, 6) * x.unsqueeze(-1)
""".strip().split("\n")

RANK_2 = """
x.T
x.mT * 2
x.transpose(0, 1)
x.permute(1, 0)
x.swapaxes(0, -1)
x[:, 0]
x[:, 1:]
x[1:, :-1]
x[:, None, 0]
x[ids[:, 0], ids[:, 1]]
x[:, ids[:, 0]]
x[ids[:, 0] % 4, :]
x[w.sum(-1) > 0]
x[w.sum(-1) > 0, 1]
x - torch.logsumexp(x, dim=-1, keepdim=True)
(torch.softmax(x, -1) * (F.log_softmax(x, -1) - torch.log(w + 1e-6))).sum(-1)
x.sum(dim=(0, 1))
x.mean((0, 1), keepdim=True)
x.amax(dim=(0, 1))
torch.nonzero(w).sum() * x
x.unbind(-1)[0] + x.unbind(-1)[2]
x.std(dim=-1)
""".strip().split("\n")


def of_expression(expression, rank):
    """A loss of the value of an expression; the source is compiled so that torch.fx traces it as users write it."""
    scope = {"torch": torch, "F": F, "math": math, "x_rank": rank, "x_size": len(INPUTS[rank]["w"])}
    exec(
        f"def loss(logprobs, w, q, ids, a):\n"
        f"    x = logprobs\n"
        f"    y = {expression}\n"
        f"    total = (y * torch.arange(1, y.numel() + 1).reshape(y.shape)).sum() + x.sum()\n"
        f"    return total, {{'custom/value:mean': y.sum()}}\n",
        scope,
    )
    return scope["loss"]


# --- losses as people write them ---

def neg_ll(logprobs, weights):
    loss = -(logprobs * weights).sum()
    return loss, {"custom/neg_ll:sum": loss}


def importance_sampling(logprobs, sampling_logprobs, advantages):
    ratio = torch.exp(logprobs - sampling_logprobs)
    return -(ratio * advantages).sum(), {"custom/ratio:mean": ratio.mean()}


def ppo_like(logprobs, sampling_logprobs, advantages, mask):
    ratio = torch.exp(logprobs - sampling_logprobs)
    clipped = torch.clamp(ratio, 0.8, 1.28)
    objective = torch.min(ratio * advantages, clipped * advantages)
    clip_fraction = ((ratio != clipped).float() * mask).sum() / mask.sum().clamp(min=1)
    return -(objective * mask).sum() / mask.sum(), {"custom/clip_fraction:mean": clip_fraction}


def gspo(logprobs, sampling_logprobs, advantages, mask):
    in_ratio = mask != 0
    log_ratio = (logprobs.detach() - sampling_logprobs)[in_ratio].mean()
    ratio = torch.exp(log_ratio + logprobs - logprobs.detach())
    clipped = ratio.clamp(1 - 3e-4, 1 + 4e-4)
    loss = -torch.minimum(ratio * advantages, clipped * advantages).sum()
    return loss, {"custom/sequence_ratio:mean": torch.exp(log_ratio)}


def cispo_with_kl(logprobs, sampling_logprobs, reference_logprobs, advantages, mask):
    ratio = (logprobs - sampling_logprobs).exp().detach().clamp(max=2.0)
    log_ratio = reference_logprobs - logprobs
    k3 = torch.exp(log_ratio) - log_ratio - 1
    loss = -(ratio * advantages * logprobs * mask).sum() + 0.1 * (k3 * mask).sum()
    return loss, {"custom/kl_k3:mean": (k3 * mask).sum() / mask.sum(), "custom/tokens:sum": mask.sum()}


def dpo_like(logprobs, reference_logprobs, sign):
    """The gain of one answer over the reference against a margin: the part of DPO that one datum has."""
    gain = (logprobs - reference_logprobs).sum()
    loss = -F.logsigmoid(0.1 * sign * gain)
    return loss, {"custom/gain:mean": gain, "custom/accuracy:mean": (sign * gain > 0).float()}


def focal(logprobs, weights):
    p = logprobs.exp()
    loss = -(((1 - p) ** 2.0) * logprobs * weights).sum() / weights.sum().clamp_min(1.0)
    return loss, {"custom/p:mean": (p * weights).sum() / weights.sum()}


def top_k_distillation(logprobs, teacher_logprobs):
    student = F.log_softmax(logprobs, dim=-1)
    teacher = F.log_softmax(teacher_logprobs, dim=-1)
    forward = (teacher.exp() * (teacher - student)).sum(-1)
    reverse = (student.exp() * (student - teacher)).sum(dim=-1)
    return 0.5 * forward.sum() + 0.5 * reverse.sum(), {
        "custom/forward_kl:mean": forward.mean(), "custom/reverse_kl:mean": reverse.mean()}


def jensen_shannon(logprobs, teacher_logprobs):
    mixture = torch.logaddexp(logprobs, teacher_logprobs) - math.log(2.0)
    left = F.kl_div(mixture, logprobs, reduction="sum", log_target=True)
    right = F.kl_div(mixture, teacher_logprobs, reduction="sum", log_target=True)
    loss = 0.5 * (left + right)
    return loss, {"custom/js:sum": loss}


LOSSES = [
    (neg_ll, {"logprobs": 1, "weights": 1}),
    (neg_ll, {"logprobs": 2, "weights": 2}),
    (importance_sampling, {"logprobs": 1, "sampling_logprobs": 1, "advantages": 1}),
    (ppo_like, {"logprobs": 1, "sampling_logprobs": 1, "advantages": 1, "mask": 1}),
    (gspo, {"logprobs": 1, "sampling_logprobs": 1, "advantages": 1, "mask": 1}),
    (cispo_with_kl, {"logprobs": 1, "sampling_logprobs": 1, "reference_logprobs": 1, "advantages": 1, "mask": 1}),
    (dpo_like, {"logprobs": 1, "reference_logprobs": 1, "sign": 0}),
    (focal, {"logprobs": 1, "weights": 1}),
    (top_k_distillation, {"logprobs": 2, "teacher_logprobs": 2}),
    (jensen_shannon, {"logprobs": 2, "teacher_logprobs": 2}),
]


def value_of(name, rank, logprob_rank):
    own = INPUTS[logprob_rank]
    if name in own:
        return own[name]
    if rank == 0:
        return torch.tensor(-1.0, dtype=torch.float64)
    if "logprobs" in name:
        return own["q"] - 0.01 * len(name)
    if name == "mask":
        return (own["w"] > 0).double()
    return own["w"]


VALUES = []


def numbered(value):
    """The number of a value in the list that all cases share."""
    entry = {"data": value.reshape(-1).tolist(), "shape": list(value.shape),
             "dtype": "int64" if value.dtype == torch.int64 else "float32"}
    if entry not in VALUES:
        VALUES.append(entry)
    return VALUES.index(entry)


def without_empty(node):
    return {key: value for key, value in node.items() if value not in ([], {})}


def case(name, fn, ranks):
    handle = trace_loss(fn, ranks, "session")
    values = {key: value_of(key, rank, ranks["logprobs"]) for key, rank in ranks.items()}
    logprobs = values["logprobs"].clone().requires_grad_(True)
    loss, metrics = handle.graph(logprobs, *[values[key] for key in list(ranks)[1:]])
    (gradient,) = torch.autograd.grad(loss, [logprobs])
    return {
        "name": name,
        "inputs": [{"name": key, "rank": rank} for key, rank in ranks.items()],
        "graph": {"nodes": [without_empty(node.model_dump()) for node in encode_graph(handle).nodes]},
        "values": [numbered(value) for value in values.values()],
        "loss": loss.item(),
        "metrics": {key: value.item() for key, value in metrics.items()},
        "gradient": gradient.reshape(-1).tolist(),
    }


def main(path):
    torch.set_default_dtype(torch.float64)
    cases = [case(fn.__name__, fn, ranks) for fn, ranks in LOSSES]
    for rank in (1, 2):
        for expression in BOTH_RANKS + (RANK_2 if rank == 2 else []):
            ranks = {"logprobs": rank, "w": rank, "q": rank, "ids": rank, "a": 0}
            try:
                cases.append(case(f"{expression} [rank {rank}]", of_expression(expression, rank), ranks))
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                print(f"left out for rank {rank}: {expression}: {str(error).splitlines()[0]}", file=sys.stderr)
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in cases)
    Path(path).write_text(f'{{"values":{json.dumps(VALUES)},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1])

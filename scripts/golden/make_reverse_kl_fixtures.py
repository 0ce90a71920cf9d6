"""Makes test/fixtures/losses/reverse-kl.json: the reverse KL of a student to its teacher's likeliest tokens, with its
gradients, by PyTorch.  Usage: npm run generate:golden:reverse-kl"""

import json
import sys
from pathlib import Path

import torch

# Positions of each datum: how many of the four slots hold a token of the teacher's; none without trained tokens.
DATA = [[0, 4, 4, 2], [1, 0, 3], [0, 0, 4, 4, 4, 1]]
SLOTS = 4


def teacher_weights(counts):
    weights = torch.zeros(len(counts), SLOTS, dtype=torch.float64)
    for row, count in enumerate(counts):
        if count > 0:
            weights[row, :count] = torch.softmax(torch.randn(count, dtype=torch.float64) * 2, dim=-1)
    return weights.float()


def reverse_kl(logprobs, weights):
    """Sum of p * stopgrad(log p - log q) over the slots that have a q, with p made a distribution over these."""
    total = torch.zeros((), dtype=torch.float64)
    entropy, positions = 0.0, 0
    for student, teacher in zip(logprobs, weights):
        slots = teacher > 0
        if not slots.any():
            continue
        log_p = torch.log_softmax(student[slots], dim=-1)
        log_q = teacher[slots].double().log()
        total = total + (log_p.exp() * (log_p - log_q).detach()).sum()
        entropy -= (log_p.exp() * log_p).sum().item()
        positions += 1
    return total, entropy, positions


def rounded(value):
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.9g}")


def main(file):
    torch.manual_seed(6)
    total, entropy, positions, data, variables = 0, 0.0, 0, [], []
    for counts in DATA:
        weights = teacher_weights(counts)
        student = torch.log_softmax(torch.randn(len(counts), SLOTS + 3) * 1.5, dim=-1)[:, :SLOTS]
        logprobs = student.double().requires_grad_()
        loss, some_entropy, some_positions = reverse_kl(logprobs, weights)
        total, entropy, positions = total + loss, entropy + some_entropy, positions + some_positions
        data.append({"weights": rounded(weights.tolist()), "logprobs": rounded(student.tolist())})
        variables.append(logprobs)
    total.backward()
    for each, variable in zip(data, variables):
        each["gradients"] = rounded(variable.grad.tolist())
    made = {"torch": torch.__version__, "loss": rounded(total.item()), "entropy": rounded(entropy / positions),
            "positions": positions, "data": data}
    Path(file).write_text(json.dumps(made, separators=(",", ":")) + "\n")


main(sys.argv[1])

"""The official client's part of bench/custom-loss/server-side.mjs: MODEL DATUMS TOKENS STEPS."""

import json
import sys
import time
import warnings

import tinker
import torch
from tinker import types

warnings.filterwarnings("ignore")
model, datums, tokens, steps = sys.argv[1], *map(int, sys.argv[2:])


def datum(index):
    inputs = [(at * 7 + index * 13) % 60 for at in range(tokens)]
    return types.Datum(model_input=types.ModelInput.from_ints(inputs), loss_fn_inputs={
        "target_tokens": torch.tensor([(token * 5 + 1) % 60 for token in inputs]),
        "sampling_logprobs": torch.tensor([-4 - ((at * 3 + index) % 5) / 8 for at in range(tokens)]),
        "advantages": torch.tensor([float((at + index) % 3 - 1) for at in range(tokens)]),
    })


def ppo(logprobs, sampling_logprobs, advantages):
    ratio = torch.exp(logprobs - sampling_logprobs)
    loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()
    return loss, {"custom/loss:sum": loss}


service = tinker.ServiceClient()
handle = service.create_custom_loss(ppo, {"logprobs": 1, "sampling_logprobs": 1, "advantages": 1}).result()
made = service.create_lora_training_client(base_model=model, rank=16, seed=1)
training = made.result() if hasattr(made, "result") else made
batch = [datum(index) for index in range(datums)]
times = []
for step in range(steps + 2):
    begin = time.perf_counter()
    future = training.forward_backward_custom(batch, handle)
    update = training.optim_step(types.AdamParams(learning_rate=1e-4))
    loss = future.result().metrics["loss:sum"]
    update.result()
    if step >= 2:
        times.append((time.perf_counter() - begin) * 1000)
print(json.dumps({"serverMsPerStep": round(sorted(times)[len(times) // 2], 3), "loss": loss}))

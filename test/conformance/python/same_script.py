"""The script of same-script.test.ts through the official SDK: prints one JSON line of everything that came back."""

import json
import os
import warnings

warnings.simplefilter("ignore")

import numpy as np
import tinker
from tinker import types

from made import made

MODEL = os.environ["MODEL"]
HAS_CUSTOM_LOSS = bool(os.environ.get("HAS_CUSTOM_LOSS"))
seen = []


def plain(output):
    return {
        "logprobs": [record["logprobs"].to_numpy().tolist() for record in output.loss_fn_outputs],
        "metrics": output.metrics,
    }


def tokens_of(first, length=6):
    return [(first * 7 + offset) % 500 for offset in range(length)]


def supervised(first):
    tokens = tokens_of(first, 4 + first % 3)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens),
        loss_fn_inputs={"target_tokens": [token + 1 for token in tokens], "weights": [0.5 + 0.25 * (first % 3)] * len(tokens)},
    )


def reinforced(first):
    tokens = tokens_of(first)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens),
        loss_fn_inputs={
            "target_tokens": [token + 1 for token in tokens],
            "logprobs": [-6.25 + 0.125 * offset for offset in range(6)],
            "advantages": [1.0, -0.5, 0.0, 2.0, -1.0, 0.25],
        },
    )


def soft(first):
    tokens = tokens_of(first, 3)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens),
        loss_fn_inputs={"target_tokens": np.array([[1, 2], [3, 4], [5, 6]]), "weights": np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], np.float32)},
    )


def weighted(data, logprobs):
    """In double precision, as ours computes: PyTorch's own float32 sum differs in its last digits."""
    loss = -sum((logprob.double() * 0.5).sum() for logprob in logprobs)
    return loss, {"halves:sum": 2.0}


def train(training):
    def step(data, loss, config=None):
        passed = training.forward_backward(data, loss, config)
        stepped = training.optim_step(types.AdamParams(learning_rate=0.01, beta2=0.99, grad_clip_norm=1.0))
        seen.append(plain(passed.result()))
        seen.append(stepped.result().metrics)

    for round in range(3):
        step([supervised(round * 10 + index) for index in range(10)], "cross_entropy")
    step([soft(1)], "cross_entropy")
    step([reinforced(index) for index in range(5)], "importance_sampling")
    step([reinforced(index) for index in range(2)], "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2})
    step([reinforced(3)], "cispo", {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0})
    step([reinforced(4)], "dro", {"beta": 0.1})
    if HAS_CUSTOM_LOSS:
        seen.append(plain(training.forward_backward_custom([supervised(1), supervised(2)], weighted).result()))
        training.optim_step(types.AdamParams(learning_rate=0.001)).result()
    seen.append(plain(training.forward([supervised(5)], "cross_entropy").result()))


def answer(response):
    return {
        "sequences": [[sequence.stop_reason, sequence.tokens, sequence.logprobs, sequence.topk_logprobs] for sequence in response.sequences],
        "prompt_logprobs": response.prompt_logprobs,
        "topk": response.topk_prompt_logprobs,
        "cache_hits": response.prompt_cache_hit_tokens,
    }


def sample(sampler):
    prompt = types.ModelInput.from_ints(tokens_of(3))
    drawn = types.SamplingParams(max_tokens=8, seed=42, temperature=0.7, top_p=0.9, top_k=50)
    seen.append(answer(sampler.sample(prompt, 3, drawn, True, 2, 2).result()))
    seen.append(answer(sampler.sample(prompt, 1, types.SamplingParams(max_tokens=4, temperature=0, stop=[])).result()))
    seen.append(sampler.compute_logprobs(prompt).result())
    seen.append(sampler.compute_logprobs(prompt, prompt_logprobs_last_n=2).result())


service = tinker.ServiceClient(user_metadata={"who": "both"}, project_id="proj", display_name="One script")
seen.append([model.model_name for model in service.get_server_capabilities().supported_models])
training = made(service.create_lora_training_client(base_model=MODEL, rank=8, seed=7, train_unembed=False))
info = training.get_info()
seen.append([info.lora_rank, info.model_name])
train(training)
path = training.save_state("state", ttl_seconds=7200, user_metadata={"step": "8"}).result().path
named = training.save_weights_for_sampler("sampler").result().path
sample(made(service.create_sampling_client(model_path=named)))
sample(made(training.save_weights_and_get_sampling_client()))
loaded = made(service.create_training_client_from_state_with_optimizer(path))
seen.append(plain(loaded.forward_backward([supervised(5)], "cross_entropy").result()))
loaded.optim_step(types.AdamParams(learning_rate=0.01)).result()
loaded.save_state("again").result()
service.close("success").result()
print(json.dumps(seen), flush=True)
# The package now and then aborts while the interpreter shuts down.
os._exit(0)

"""The Python cookbook's formulas of distillation, over data that come as JSON. Run by cookbook_renderers.py, as formulas."""

import asyncio
from types import SimpleNamespace

import tinker
import torch
from tinker_cookbook.distillation import sdft, train_off_policy, train_on_policy

from reinforcement import Scorer


class Teacher(Scorer):
    """Its likeliest tokens are a rule of the token before and of the place, the same in TypeScript."""

    async def sample_async(self, prompt, topk_prompt_logprobs, **_):
        tokens = prompt.to_ints()
        likeliest = [None] + [self.candidates(tokens[at - 1], at, topk_prompt_logprobs) for at in range(1, len(tokens))]
        return SimpleNamespace(topk_prompt_logprobs=likeliest)

    def candidates(self, before, at, count):
        # Some servers send fewer than they were asked for.
        sent = count if (before + at) % 7 else max(1, count - 1)
        return [((before * 3 + at + 11 * rank) % 97, -((rank * (1 + (before * self.factor) % 5) + at % 3) / 4))
                for rank in range(sent)]


def rollout_datum(given):
    inputs = {name: tinker.TensorData(data=given[name], dtype="float32", shape=[len(given[name])])
              for name in ("logprobs", "advantages", "mask")}
    targets = tinker.TensorData(data=given["targets"], dtype="int64", shape=[len(given["targets"])])
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(given["input"]),
                        loss_fn_inputs={"target_tokens": targets, **inputs})


def places(data):
    return [{"group_idx": each["group"], "traj_idx": 0} for each in data]


def floats(datum, name):
    return [float(each) for each in datum.loss_fn_inputs[name].data]


def soft_targets(datum):
    """By position, the tokens that weigh anything with their weights."""
    tokens, weights = (datum.loss_fn_inputs[name].to_torch() for name in ("target_tokens", "weights"))
    return [[[int(token), float(weight)] for token, weight in zip(*row) if weight > 0] for row in zip(tokens, weights)]


def penalize(data, datasets, coefficient, discount):
    """`datasets` has the data set of each group."""
    made = [rollout_datum(each) for each in data]
    indices = [datasets[each["group"]] for each in data]
    found = asyncio.run(train_on_policy.incorporate_kl_penalty(
        made, [Teacher(3 + 2 * index) for index in indices], indices, coefficient, discount))
    return {"advantages": [floats(each, "advantages") for each in made], "metrics": found}


def off_policy(input, targets, weights, topk):
    datum = tinker.Datum(model_input=tinker.ModelInput.from_ints(input), loss_fn_inputs={
        "target_tokens": tinker.TensorData(data=targets, dtype="int64", shape=[len(targets)]),
        "weights": tinker.TensorData(data=weights, dtype="float32", shape=[len(weights)])})
    return soft_targets(asyncio.run(train_off_policy._collect_topk_for_datum(Teacher(3), datum, topk)))


def hinted(data, prompts, topk, max_length, skip):
    """Soft targets where `topk` is above 0, else advantages."""
    made, where = [rollout_datum(each) for each in data], places(data)
    inputs = [tinker.ModelInput.from_ints(each) for each in prompts]
    if topk == 0:
        found = asyncio.run(sdft.compute_sdft_advantages(made, where, Teacher(5), inputs, max_length))
        return {"advantages": [floats(each, "advantages") for each in made], "metrics": found}
    settings = {"topk": topk, "max_context_length": max_length, "skip_first_n_tokens": skip}
    forward, found = asyncio.run(sdft.build_topk_distillation_datums(made, where, Teacher(5), inputs, **settings))
    reverse, counted = asyncio.run(sdft.build_reverse_kl_datums(made, where, Teacher(5), inputs, **settings))
    return {"forward": [soft_targets(each) for each in forward], "reverse": [soft_targets(each) for each in reverse],
            "metrics": {**counted, **found}, "entropy": counted.get("sdft/mean_teacher_entropy")}


def teacher_messages(question, answer, system):
    return sdft.build_sdft_teacher_prompt(question, answer, SimpleNamespace(build_generation_prompt=lambda messages: messages),
                                          system_prompt=system, demo_template="{question} <{golden_answer}>")


FORMULAS = {
    "teacherPenalty": penalize,
    "offPolicyTargets": off_policy,
    "hinted": hinted,
    "teacherMessages": teacher_messages,
}

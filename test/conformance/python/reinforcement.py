"""The Python cookbook's formulas of reinforcement learning, over episodes that come as JSON. Run by cookbook_renderers.py, as formulas."""

import asyncio
from types import SimpleNamespace

import tinker
import torch
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl import data_processing, metric_util, metrics
from tinker_cookbook.rl.types import PARSE_ERROR_MASKED_METRIC_KEY, Trajectory, TrajectoryGroup, Transition
from tinker_cookbook.utils import misc_utils

from chunks import chunk, plain_chunk


def transition(given):
    masked = {PARSE_ERROR_MASKED_METRIC_KEY: 1.0} if given["masked"] else {}
    return Transition(
        ob=tinker.ModelInput(chunks=[chunk(each) for each in given["observation"]]),
        # JSON does not tell 1.0 from 1.
        ac=TokensWithLogprobs(tokens=given["tokens"], maybe_logprobs=[float(each) for each in given["logprobs"]]),
        reward=float(given["reward"]), episode_done=False, metrics={**given["metrics"], **masked})


def trajectory(given):
    turns = [transition(each) for each in given["turns"]]
    if turns and given["end"]:
        turns[-1].metrics[f"stop/{given['end']}"] = 1.0
    return Trajectory(transitions=turns, final_ob=tinker.ModelInput.empty(), stop_reason=given["end"])


def group(given):
    return TrajectoryGroup([trajectory(each) for each in given["trajectories"]], given["rewards"], given["metrics"])


def plain_datum(datum, places):
    inputs = datum.loss_fn_inputs
    return {
        "input": [plain_chunk(each) for each in datum.model_input.chunks],
        "targets": list(inputs["target_tokens"].data),
        **{name: [float(each) for each in inputs[name].data] for name in ("logprobs", "advantages", "mask")},
        "group": places["group_idx"], "trajectory": places["traj_idx"],
    }


def assembled(groups):
    made = [group(each) for each in groups]
    return data_processing.assemble_training_data(made, data_processing.compute_advantages(made))


class Scorer:
    """A model whose logprobs are a rule of the token and its place, the same in TypeScript. Sums of them are exact."""

    def __init__(self, factor):
        self.factor = factor

    async def compute_logprobs_async(self, sequence):
        tokens = []
        for each in sequence.chunks:
            tokens += each.tokens if isinstance(each, tinker.EncodedTextChunk) else [0] * each.length
        return [None if at == 0 else -((token * self.factor + at) % 64) / 16 for at, token in enumerate(tokens)]


def assemble(groups):
    made = [group(each) for each in groups]
    kept = data_processing.remove_constant_reward_groups(made)
    return {
        "advantages": [[float(each) for each in some] for some in data_processing.compute_advantages(made)],
        "data": [plain_datum(*each) for each in zip(*assembled(groups), strict=True)],
        "kept": [place for place, each in enumerate(made) if any(each is other for other in kept)],
    }


def penalize(groups, coefficient, discount):
    data, places = assembled(groups)
    found = asyncio.run(metrics.incorporate_kl_penalty(data, Scorer(7), coefficient, discount))
    return {"data": [plain_datum(*each) for each in zip(data, places, strict=True)], "metrics": found}


def diverge(groups):
    data, _ = assembled(groups)
    sequences = [datum.model_input.append_int(datum.loss_fn_inputs["target_tokens"].data[-1]) for datum in data]
    trained = [torch.tensor(asyncio.run(Scorer(5).compute_logprobs_async(each))[1:]) for each in sequences]
    return {
        **metrics.compute_kl_sample_train(data, trained),
        **asyncio.run(metrics.compute_post_kl(data, Scorer(3))),
    }


def batch_metrics(groups):
    return metric_util.compute_trajectory_metrics([group(each) for each in groups], [each["tags"] for each in groups])


def sampler_metrics(groups):
    return metrics.compute_sampling_client_metrics([
        SimpleNamespace(sampling_client_step=step, metrics={"time/trajectory_group_worker_loop/total": seconds})
        for step, seconds in groups])


def discounted_sums(values, discount):
    return [float(each) for each in metrics.discounted_future_sum_vectorized(torch.tensor(values), discount)]


FORMULAS = {
    "assembleData": assemble,
    "klPenalty": penalize,
    "divergences": diverge,
    "trajectoryMetrics": batch_metrics,
    "samplerMetrics": sampler_metrics,
    "discountedSums": discounted_sums,
    "splitEvenly": lambda length, parts: [len(each) for each in misc_utils.split_list(range(length), parts)],
}

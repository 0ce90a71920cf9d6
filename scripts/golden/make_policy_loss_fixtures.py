"""Makes test/fixtures/losses/policy.json: losses over episodes with their gradients, penalties and advantages, by
PyTorch.  Usage: npm run generate:golden:losses"""

import json
import sys
from pathlib import Path

import torch

# Episodes by group and trajectory, each with the lengths of what was read and sampled in turn. The last but one is
# cut into two data, as when a conversation is written again; one turn of the last is masked.
EPISODES = [
    (0, 0, [[3, 4]]),
    (0, 1, [[3, 7, 2, 3]]),
    (1, 0, [[2, 5], [4, 3]]),
    (1, 1, [[2, 2, 1, -3, 2, 4]]),
]
CLIP = {"clipLowThreshold": 0.8, "clipHighThreshold": 1.2}
LOSSES = [
    ("importance_sampling", {}),
    ("ppo", CLIP),
    ("ppo", {"clipLowThreshold": 0.95, "clipHighThreshold": 1.5}),
    ("cispo", CLIP),
    ("dro", {"beta": 0.05}),
    ("dro", {"beta": 0.7}),
    ("dapo", {"clipLowThreshold": 0.8, "clipHighThreshold": 1.28}),
    ("gspo", {"clipLowThreshold": 1 - 3e-4, "clipHighThreshold": 1 + 4e-4}),
    ("gspo", CLIP),
]


def episode_data(vary):
    """One advantage for each episode, or one for each token where `vary`."""
    data = []
    for index, (group, trajectory, stretches) in enumerate(EPISODES):
        advantage = [0.75, -0.5, 1.25, -1.0][index]
        for lengths in stretches:
            mask = []
            for place, length in enumerate(lengths):
                mask += [float(place % 2 == 1 and length > 0)] * abs(length)
            mask = torch.tensor(mask)
            own = torch.randn(len(mask)) * 0.4 if vary else torch.zeros(len(mask))
            sampled = -torch.rand(len(mask)) * 3
            # Some tokens have moved far, so that every side of every clip is met.
            training = sampled + torch.randn(len(mask)) * 0.35
            data.append({
                "group": group, "trajectory": trajectory, "mask": mask, "advantages": torch.where(mask > 0, advantage + own, 0.0),
                "logprobs": sampled, "trainingLogprobs": training,
            })
    return data


def token_loss(name, config, ratio, logprob, sampled, advantage):
    if name == "importance_sampling":
        return -ratio * advantage
    if name == "dro":
        return -(logprob * advantage - config["beta"] / 2 * (logprob - sampled) ** 2)
    clipped = ratio.clamp(config["clipLowThreshold"], config["clipHighThreshold"])
    if name == "cispo":
        return -clipped.detach() * logprob * advantage
    return -torch.minimum(ratio * advantage, clipped * advantage)


def loss_of(name, config, data, logprobs):
    masks = [each["mask"].double() for each in data]
    if name == "gspo":
        return gspo(config, data, logprobs, masks)
    total = torch.zeros((), dtype=torch.float64)
    for each, logprob, mask in zip(data, logprobs, masks):
        sampled, advantage = each["logprobs"].double(), each["advantages"].double()
        losses = token_loss(name, config, (logprob - sampled).exp(), logprob, sampled, advantage)
        total = total + (losses * mask).sum()
    return total / sum(mask.sum() for mask in masks) if name == "dapo" else total


def gspo(config, data, logprobs, masks):
    episodes = sorted({(each["group"], each["trajectory"]) for each in data})
    total = torch.zeros((), dtype=torch.float64)
    for episode in episodes:
        parts = [index for index, each in enumerate(data) if (each["group"], each["trajectory"]) == episode]
        length = sum(masks[index].sum() for index in parts)
        log_ratio = sum(((logprobs[index] - data[index]["logprobs"].double()) * masks[index]).sum()
                        for index in parts) / length
        for index in parts:
            # The ratio of the episode in value, that of the token in gradient.
            ratio = (log_ratio.detach() + logprobs[index] - logprobs[index].detach()).exp()
            losses = token_loss("ppo", config, ratio, None, None, data[index]["advantages"].double())
            total = total + (losses * masks[index]).sum() / length
    return total / len(episodes)


def golden(name, config, data):
    logprobs = [each["trainingLogprobs"].double().requires_grad_() for each in data]
    loss = loss_of(name, config, data, logprobs)
    loss.backward()
    return {"name": name, "config": config, "loss": loss.item(),
            "gradients": [each.grad.tolist() for each in logprobs]}


def penalty(data, reference, coefficient, discount):
    differences = [(each["logprobs"] - lp) * each["mask"] for each, lp in zip(data, reference)]
    mean = sum(each.sum() for each in differences) / sum(each["mask"].sum() for each in data)
    advantages = []
    for each, difference in zip(data, differences):
        change = coefficient * each["mask"] * (mean - difference)
        running = torch.zeros(())
        for at in reversed(range(len(change))):
            running = change[at] + discount * running
            change[at] = running
        advantages.append((each["advantages"] + change * each["mask"]).tolist())
    return {"coefficient": coefficient, "discount": discount, "mean": mean.item(), "advantages": advantages}


def advantages(rewards):
    rewards = torch.tensor(rewards)
    centred = rewards - rewards.mean()
    others = [(rewards.sum() - each) / (len(rewards) - 1) for each in rewards]
    return {
        "rewards": rewards.tolist(),
        "mean": centred.tolist(),
        "mean_deviation": (centred / (rewards.std() + 1e-6)).tolist(),
        "leave_one_out": (rewards - torch.stack(others)).tolist(),
    }


def rounded(value):
    """Nine digits say all of a float32; gradients in 64 bits need no more either."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main(file):
    torch.manual_seed(14)
    batches = []
    for vary in [False, True]:
        data = episode_data(vary)
        reference = [each["logprobs"] + torch.randn(len(each["mask"])) * 0.2 for each in data]
        batches.append({
            "data": data,
            "losses": [golden(name, config, data) for name, config in LOSSES],
            "reference": reference,
            "penalties": [penalty(data, reference, *each) for each in [(0.1, 0.0), (0.5, 0.9), (0.05, 1.0)]],
        })
    rewards = [[1.0, 0.0, 0.0, 1.0], [0.1, 0.7, -1.3], torch.randn(16).tolist(), [0.3, 0.3], [0.9, -0.1]]
    made = {"torch": torch.__version__, "batches": batches, "advantages": [advantages(each) for each in rewards]}
    Path(file).write_text(json.dumps(rounded(made), separators=(",", ":")) + "\n")


main(sys.argv[1])

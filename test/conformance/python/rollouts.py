"""The Python cookbook's rollouts as a judge: scripted environments and policies in virtual time, and its records of
episodes. One JSON command a line in, one JSON answer a line out. Run by rollouts.test.ts."""

import asyncio
import logging
import os
import selectors
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

# Before the stand-ins: it would take them for the real packages.
import transformers  # noqa: F401

from character_tokenizer import SHIMS
from serve import serve

# Behind everything else: real ones are taken where they are installed.
sys.path.append(SHIMS)

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl import rollout_presets, rollout_runner, rollouts
from tinker_cookbook.rl.rollout_limits import RolloutLimits, TerminationRewardPolicy
from tinker_cookbook.rl.rollout_logging import serialize_rollout_summaries
from tinker_cookbook.rl.rollout_strategy import FailFast, MinViableGroup, RetryOnFailure
from tinker_cookbook.rl.types import (
    Env, EnvGroupBuilder, InitialObservationOverflow, StepResult, Trajectory, TrajectoryGroup, Transition,
)
from tinker_cookbook.stores.storage import LocalStorage
from tinker_cookbook.stores.training_store import TrainingRunStore
from tinker_cookbook.utils import logtree


class VirtualSelector(selectors.DefaultSelector):
    """Time passes only where everybody waits for it, and then at once."""

    now = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("everybody waits for ever")
        self.now += max(timeout, 0)
        return super().select(0)


def in_virtual_time(work):
    selector = VirtualSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now

    class Time:
        monotonic = staticmethod(loop.time)

    rollout_runner.time = Time
    try:
        return loop.run_until_complete(work())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class ScriptError(Exception):
    pass


async def wait(script):
    """Takes as long as the script says, or for ever, or fails behind it."""
    delay = script.get("delay", 0)
    if delay == "never":
        await asyncio.Event().wait()
    elif delay > 0:
        await asyncio.sleep(delay / 1000)
    if script.get("error") == "timeout":
        raise TimeoutError("its own")
    if "error" in script:
        raise ScriptError(script["error"])


def number(value):
    return float(value) if isinstance(value, str) else value


def prompt(length):
    return tinker.ModelInput.from_ints(list(range(length)))


class ScriptedEnv(Env):
    def __init__(self, script):
        self.script = script
        self.steps = iter(script["steps"])
        self.length = 0

    async def initial_observation(self):
        start = self.script["start"]
        await wait(start)
        if "overflow" in start:
            return InitialObservationOverflow(
                reward=start["overflow"], metrics={"stop/max_tokens": 1.0, "big": 1})
        self.length = start["length"]
        return prompt(self.length), []

    async def step(self, action, *, extra=None):
        step = next(self.steps, {"reward": 1, "done": True, "end": "completed", "length": 0})
        await wait(step)
        self.length = step["length"]
        metrics = dict(step.get("metrics", {}))
        if step.get("masked"):
            metrics["parse_error_masked"] = 1.0
        if step["done"] and step.get("end") is not None:
            metrics[f"stop/{step['end']}"] = 1.0
        return StepResult(
            reward=number(step["reward"]), episode_done=step["done"], next_observation=prompt(self.length),
            next_stop_condition=[], metrics=metrics, logs=dict(step.get("logs", {})))


class TalkingEnv(ScriptedEnv):
    async def inject_messages(self, messages):
        self.length += 2 * len(messages)
        return prompt(self.length), []


class ScriptedPolicy:
    def __init__(self, actions):
        self.actions = iter(actions)
        self.calls = []

    async def __call__(self, model_input, stop, *, max_tokens=None):
        self.calls.append([model_input.length, max_tokens])
        action = next(self.actions, {"length": 2})
        await wait(action)
        length, is_cut = action["length"], False
        if max_tokens is not None and length > max_tokens:
            length, is_cut = max_tokens, True
        reason = "length" if is_cut else action.get("stop", "stop")
        return TokensWithLogprobs(
            tokens=list(range(length)), maybe_logprobs=[-0.5] * length, stop_reason=reason)


class ScriptedHooks:
    def __init__(self, script):
        self.added = iter(script.get("added", []))
        self.answers = iter(script.get("answers", []))
        self.end_delay = script.get("endDelay", 0)
        self.told = []

    def tell(self, what, state):
        self.told.append([what, len(state.transitions), state.observation_tokens, state.sampled_tokens,
                          state.num_length_truncations])

    async def on_turn_begin(self, state):
        self.tell("turn", state)
        return [{"role": "user", "content": "more"}] * next(self.added, 0) or None

    async def on_stop_reason(self, reason, state):
        self.tell(f"stop {reason}", state)
        answer = next(self.answers, "accept")
        return {"accept": reason, "clear": None}.get(answer, answer)

    async def on_grade(self, state):
        self.tell("graded", state)

    async def on_artifacts(self, state):
        self.tell("end", state)
        await wait({"delay": self.end_delay})


def plain_trajectory(trajectory):
    return {
        "end": trajectory.stop_reason,
        "finalLength": trajectory.final_ob.length,
        "turns": [
            {
                "length": each.ob.length, "sampled": len(each.ac.tokens), "reward": repr(float(each.reward)),
                "isDone": each.episode_done, "metrics": each.metrics, "logs": each.logs,
            }
            for each in trajectory.transitions
        ],
    }


def rollout_limits(given):
    return None if given is None else RolloutLimits(**given)


def rollout(script, actions, limits=None, hooks=None):
    policy = ScriptedPolicy(actions)
    scripted = None if hooks is None else ScriptedHooks(hooks)
    env = (TalkingEnv if script.get("talks") else ScriptedEnv)(script)

    async def work():
        return await rollout_runner.run_rollout(policy, env, limits=rollout_limits(limits), hooks=scripted)

    try:
        outcome = {"ok": plain_trajectory(in_virtual_time(work))}
    except Exception as error:
        outcome = {"error": type(error).__name__}
    return {**outcome, "calls": policy.calls, "told": None if scripted is None else scripted.told}


class ScriptedGroup(EnvGroupBuilder):
    def __init__(self, script):
        self.script = script
        self.makings = 0
        self.cleanups = 0
        self.gradings = 0

    async def make_envs(self):
        self.makings += 1
        if self.makings == 1:
            await wait(self.script.get("making", {}))
            return [ScriptedEnv(each) for each in self.script["members"]]
        again = self.script["again"]
        script = again[min(self.makings - 2, len(again) - 1)]
        return [ScriptedEnv(script) for _ in self.script["members"]]

    async def compute_group_rewards(self, trajectory_group, env_group):
        self.gradings += 1
        grading = self.script["grading"]
        await wait(grading)
        size = len(trajectory_group)
        assert size == len(env_group)
        return [
            (grading["factor"] * sum(each.reward for each in trajectory.transitions) + grading["bonus"] * size,
             {"seen": size})
            for trajectory in trajectory_group
        ]

    async def cleanup(self):
        self.cleanups += 1


def strategy_of(kind, maxRetries=3, minSuccessful=None, timeout=None):
    if kind == "failFast":
        return FailFast()
    if kind == "retryOnFailure":
        return RetryOnFailure(max_retries=maxRetries, per_rollout_timeout=timeout or 0)
    return MinViableGroup(min_successful=minSuccessful, max_retries=maxRetries, per_rollout_timeout=timeout)


def group(script, strategy, termination=None):
    builder = ScriptedGroup(script)
    chosen = strategy_of(**strategy)
    policy = None if termination is None else TerminationRewardPolicy(**termination)
    counter = rollouts.RolloutErrorCounter()

    async def work():
        return await rollouts.do_group_rollout(builder, ScriptedPolicy([]), strategy=chosen, termination=policy)

    # As do_group_rollout_and_filter_constant_reward does it, which needs a sampling client.
    try:
        result = in_virtual_time(work)
        counter.ingest(result)
        outcome = {"ok": [
            {**plain_trajectory(trajectory), "groupReward": reward, "metrics": metrics}
            for trajectory, reward, metrics in zip(
                result.trajectories_G, result.final_rewards_G, result.metrics_G, strict=True)
        ], "failures": counter.get_metrics()}
    except AllTrajectoriesFailedError:
        outcome = {"skipped": True}
    except Exception as error:
        outcome = {"skipped": True} if chosen.catches_group_errors else {"error": type(error).__name__}
    return {**outcome, "makings": builder.makings, "cleanups": builder.cleanups, "gradings": builder.gradings}


def group_of(described):
    trajectories = [
        Trajectory(
            transitions=[
                Transition(
                    ob=prompt(turn["length"]),
                    ac=TokensWithLogprobs(tokens=turn["tokens"], maybe_logprobs=turn["logprobs"]),
                    reward=turn["reward"], episode_done=turn["isDone"], metrics=turn["metrics"], logs=turn["logs"])
                for turn in each["turns"]
            ],
            final_ob=prompt(each["finalLength"]), stop_reason=each["end"])
        for each in described["trajectories"]
    ]
    return TrajectoryGroup(trajectories, described["groupRewards"], described["metrics"])


def records(split, iteration, groups):
    made = [group_of(each) for each in groups]
    summaries = serialize_rollout_summaries(
        split=split, iteration=iteration, trajectory_groups_P=made, taglist_P=[each["tags"] for each in groups],
        sampling_client_steps_P=[each["samplerStep"] for each in groups])
    with logtree.init_trace("episodes") as trace:
        for level in range(3):
            logtree._header_depth.set((*logtree._header_depth.get(), level + 2))
        for each in made:
            for trajectory, reward in zip(each.trajectories_G, each.final_rewards_G, strict=True):
                rollouts._log_single_trajectory_details(trajectory, reward)
    # Behind the title and the date.
    return {"summaries": summaries, "details": trace.to_dict()["root"]["children"][2:]}


def read(folder, iteration):
    store = TrainingRunStore(LocalStorage(folder), "")
    tree = store.read_logtree(iteration)
    return {
        "iterations": [vars(each) for each in store.list_iterations()],
        "train": store.read_rollouts(iteration),
        "single": store.read_single_rollout(iteration, 0, 1),
        "logtrees": store.list_logtrees(iteration),
        "tree": {key: value for key, value in tree.items() if key != "root"},
    }


def presets(models):
    def plain(value):
        return {key: getattr(value, key) for key in value.__chz_fields__}

    def described(model):
        config = rollout_presets.default_rollout_config_for_model(model)
        return {
            "limits": plain(config.limits),
            "parse_errors": config.parse_errors and plain(config.parse_errors),
            "termination": config.termination and plain(config.termination),
            "tool_execution": config.tool_execution,
            "strategy": type(rollout_presets.default_rollout_strategy_for_model(model)).__name__,
        }

    return [described(model) for model in models]


def each_of(function):
    return lambda cases: [function(**case) for case in cases]


serve({"rollouts": each_of(rollout), "groups": each_of(group), "records": records, "read": read, "presets": presets})

"""The Python cookbook's environments as a judge: one JSON command a line in, one JSON answer a line out. Run by environments.test.ts."""

import asyncio
import logging
import os
import sys
import warnings
from typing import Annotated

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

# Before the stand-ins: it would take them for the real packages.
from transformers import PreTrainedTokenizerFast

from character_tokenizer import SHIMS
from serve import serve

# Behind everything else: real ones are taken where they are installed.
sys.path.append(SHIMS)

from tinker_cookbook.renderers import base, get_renderer
from tinker_cookbook.rl.interleaved import _InterleavedRLDataset
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.problem_env import ProblemEnv
from tinker_cookbook.rl.rollout_limits import ParseErrorPolicy, RolloutLimits, TerminationRewardPolicy
from tinker_cookbook.rl.rollout_presets import RolloutConfig
from tinker_cookbook.rl.types import InitialObservationOverflow
from tinker_cookbook.tool_use.agent_tool_message_env import build_agent_tool_env
from tinker_cookbook.tool_use.tools import simple_tool_result, tool

renderer = None


def open_renderer(folder, name):
    global renderer
    renderer = get_renderer(name, PreTrainedTokenizerFast.from_pretrained(folder))


def write_observation(observation):
    return [token for chunk in observation.chunks for token in chunk.tokens]


def write_step(step):
    return {
        "reward": step.reward,
        "isDone": step.episode_done,
        "next": write_observation(step.next_observation),
        "metrics": step.metrics,
        "logs": step.logs,
    }


async def play(env, actions):
    """The first observation and all steps, up to the end of the episode or of the answers."""
    first = await env.initial_observation()
    if isinstance(first, InitialObservationOverflow):
        return {"overflow": {"reward": first.reward, "metrics": first.metrics, "logs": list(first.logs)}}
    steps = []
    for action in actions:
        step = await env.step(action["tokens"], extra={"stop_reason": action["stop_reason"]})
        steps.append(write_step(step))
        if step.episode_done:
            break
    return {"first": write_observation(first[0]), "stop": first[1], "steps": steps}


class Problem(ProblemEnv):
    def __init__(self, prompt, correct, format):
        super().__init__(renderer)
        self.prompt, self.correct, self.format = prompt, correct, format

    def get_question(self):
        return self.prompt

    def check_answer(self, sample_str):
        return self.correct if sample_str else 0

    def check_format(self, sample_str):
        return self.format

    def get_reference_answer(self):
        return ""


def problem(prompt, correct, format, actions):
    return asyncio.run(play(Problem(prompt, correct, format), actions))


class Scripted(MessageEnv):
    """Answers with a script, and is done with its last line."""

    def __init__(self, messages, replies, records_truncated):
        self.history, self.replies, self.records_truncated = list(messages), list(replies), records_truncated

    async def initial_observation(self):
        return self.history

    async def observe_truncated_response(self, message):
        if not self.records_truncated:
            return None
        self.history.append(message)
        return self.history

    async def step(self, message):
        reply = self.replies.pop(0)
        self.history = [*self.history, message, *reply["messages"]]
        return MessageStepResult(
            reward=reply["reward"],
            episode_done=not self.replies,
            next_messages=self.history,
            metrics=dict(reply["metrics"]),
        )


def policy_of(policy):
    return None if policy is None else ParseErrorPolicy(**policy)


def conversation(messages, replies, actions, options, policy=None):
    records_truncated = not options.get("terminate_on_length", True)
    env = EnvFromMessageEnv(
        renderer, Scripted(messages, replies, records_truncated), parse_error_policy=policy_of(policy), **options
    )
    return asyncio.run(play(env, actions))


@tool
async def add(a: Annotated[int, "the first"], b: Annotated[int, "the second"] = 1):
    """Adds."""
    return simple_tool_result(str(a + b))


@tool
def submit():
    """Ends the episode."""
    return simple_tool_result("submitted", should_stop=True)


@tool
async def fail():
    """Fails."""
    raise ValueError("no way")


def agent(messages, actions, options, limits, policy=None, termination=None, tool_execution="parallel"):
    graded = []

    async def reward(history):
        graded.append([message["role"] for message in history])
        return 0.5 * len(history), {"graded": 1.0}

    env = build_agent_tool_env(
        renderer,
        [add, submit, fail],
        messages,
        reward,
        rollout_config=RolloutConfig(
            limits=RolloutLimits(**limits),
            termination=None if termination is None else TerminationRewardPolicy(**termination),
            tool_execution=tool_execution,
        ),
        parse_error_policy=policy_of(policy),
        **options,
    )
    played = asyncio.run(play(env, actions))
    history = [[message["role"], base.get_text_content(message)] for message in env.message_env.history]
    return {**played, "graded": graded, "history": history}


class Groups:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def get_batch(self, index):
        return [index]


def interleaved(lengths, weights):
    return len(_InterleavedRLDataset([Groups(length) for length in lengths], weights, groups_per_batch=1))


OPERATIONS = {each.__name__: each for each in (problem, conversation, agent, interleaved)}


def run(operation, cases):
    return [OPERATIONS[operation](**case) for case in cases]


serve({"open": open_renderer, "run": run})

"""The Python cookbook's renderers as a judge: one JSON command a line in, one JSON answer a line out. Run by renderers.test.ts."""

import inspect
import logging
import math
import os
import re
import sys
import warnings
from itertools import groupby

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

# Before the stand-ins: it would take them for the real packages.
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from character_tokenizer import SHIMS, CharacterTokenizer, TmlCharacters
from serve import serve

# Behind everything else: real ones are taken where they are installed.
sys.path.append(SHIMS)

from importlib.metadata import version

from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.renderers import base

import formulas

# As in the models' own preprocessor_config.json.
QWEN_IMAGES = Qwen2VLImageProcessorPil(
    patch_size=16, merge_size=2, size={"shortest_edge": 256 * 256, "longest_edge": 4096 * 4096})



class KimiImages:
    """The rule of Kimi's image processor, which itself comes only with the model."""

    def get_resize_config(self, media):
        width, height = media["image"].size
        scale = min(1, math.sqrt(16384 / (max(1, width // 14) * max(1, height // 14))), 7168 / width, 7168 / height)
        across, down = (math.ceil(min(7168, max(1, int(side * scale))) / 28) for side in (width, height))
        return {"num_tokens": across * down}


tokenizers = {}
renderers = {}
translations = {}


def add_tokenizer(name, folder=None, **characters):
    # AutoTokenizer would build a Llama 2 tokenizer out of DeepSeek's files, since their configuration names that class.
    tokenizers[name] = PreTrainedTokenizerFast.from_pretrained(folder) if folder else CharacterTokenizer(**characters)


def renderer_of(name, tokenizer):
    key = (name, tokenizer)
    if key not in renderers:
        if name == "tml_v0":
            translations[name] = TmlCharacters(tokenizers[tokenizer])
        made = translations[name].tokenizer if name in translations else tokenizers[tokenizer]
        images = QWEN_IMAGES if name.startswith("qwen3_") else KimiImages() if name.startswith("kimi_k2") else None
        renderers[key] = get_renderer(name, made, images)
    return renderers[key]


def read_tokens(renderer, tokens):
    translation = translations.get(renderer._renderer_name)
    return list(tokens) if translation is None else translation.read(tokens)


def positions(model_input):
    """The tokens, and at each position of an image its name."""
    return [position for chunk in model_input.chunks
            for position in (chunk.tokens if hasattr(chunk, "tokens") else ["image"] * chunk.length)]


def write_tokens(renderer, tokens):
    translation = translations.get(renderer._renderer_name)
    return tokens if translation is None else translation.write(tokens)


def read_message(given):
    message = dict(given)
    if "tool_calls" in message:
        message["tool_calls"] = [base.ToolCall(**call) for call in message["tool_calls"]]
    if "unparsed_tool_calls" in message:
        message["unparsed_tool_calls"] = [base.UnparsedToolCall(**call) for call in message["unparsed_tool_calls"]]
    return message


def conversation(renderer, messages, tools=None, system=""):
    read = [read_message(message) for message in messages]
    if tools is None:
        return read
    prefix = renderer.create_conversation_prefix_with_tools(tools, system)
    if any("trainable" in message for message in messages):
        prefix = [{**message, "trainable": False} for message in prefix]
    return prefix + read


def write_example(renderer, example):
    model_input, weights = example
    tokens, of_tokens = [], []
    # Weights change between tokens of theirs only: translated run by run, they keep their places.
    for weight, run in groupby(zip(positions(model_input), weights, strict=True), key=lambda pair: float(pair[1])):
        written = write_tokens(renderer, [token for token, _ in run])
        tokens += written
        of_tokens += [weight] * len(written)
    return {"tokens": tokens, "weights": of_tokens}


def write_delta(delta):
    match delta:
        case base.StreamingMessageHeader():
            return {"type": "header", "role": delta.role}
        case base.StreamingTextDelta():
            return {"type": "text", "text": delta.text, "contentIndex": delta.content_index}
        case base.StreamingThinkingDelta():
            return {"type": "thinking", "thinking": delta.thinking, "contentIndex": delta.content_index}
        case _:
            return {"type": "message", "message": base.message_to_jsonable(delta)}


def prompt(renderer, role="assistant", prefill=None, **given):
    built = renderer.build_generation_prompt(conversation(renderer, **given), role=role, prefill=prefill)
    return write_tokens(renderer, positions(built))


def example(renderer, train_on, **given):
    built = renderer.build_supervised_example(conversation(renderer, **given), TrainOnWhat(train_on))
    return write_example(renderer, built)


def examples(renderer, train_on, **given):
    messages = conversation(renderer, **given)
    return [write_example(renderer, each) for each in renderer.build_supervised_examples(messages, TrainOnWhat(train_on))]


def parse(renderer, tokens):
    message, termination = renderer.parse_response(read_tokens(renderer, tokens))
    return {"message": base.message_to_jsonable(message), "termination": str(termination)}


def stream(renderer, tokens):
    return [write_delta(delta) for delta in renderer.parse_response_streaming(read_tokens(renderer, tokens))]


def tools(renderer, tools, system):
    return [base.message_to_jsonable(message) for message in renderer.create_conversation_prefix_with_tools(tools, system)]


def properties(renderer):
    return {
        "stopSequences": write_tokens(renderer, renderer.get_stop_sequences()),
        "hasExtensionProperty": renderer.has_extension_property,
        "supportsStreaming": renderer.supports_streaming,
    }


OPERATIONS = {each.__name__: each for each in (prompt, example, examples, parse, stream, tools, properties)}


def attempt(renderer, operation, **given):
    try:
        return {"ok": OPERATIONS[operation](renderer, **given)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def run(renderer, tokenizer, cases):
    made = renderer_of(renderer, tokenizer)
    return [attempt(made, **case) for case in cases]


def formula(formula, cases, tokenizer=None):
    return formulas.calculate(formula, cases, **({} if tokenizer is None else {"tokenizer": tokenizers[tokenizer]}))


def names():
    """The renderers that the package knows, as its own code compares them."""
    return re.findall(r'name == "(\w+)"', inspect.getsource(get_renderer))


serve({
    "names": names,
    "formula": formula,
    "version": lambda: version("tinker-cookbook"),
    "tokenizer": add_tokenizer,
    "run": run,
})

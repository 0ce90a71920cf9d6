"""The Python cookbook's renderers as a judge: one JSON command a line in, one JSON answer a line out. Run by renderers.test.ts."""

import json
import logging
import os
import re
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

# Before the stand-ins: it would take them for the real packages.
from transformers import AutoTokenizer

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shims"))

from importlib.metadata import version

from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.renderers import base

FIRST_ADDED = 0x110000


class CharacterTokenizer:
    """Every character is a token, and so is every text in the two lists: a vocabulary for formats whose own is not at hand."""

    def __init__(self, special, plain, bos, eos):
        self.name_or_path = "characters"
        self.added = [*special, *plain]
        self.ids = {text: FIRST_ADDED + index for index, text in enumerate(self.added)}
        self.bos_token, self.eos_token = bos, eos
        self.bos_token_id = None if bos is None else self.ids[bos]
        self.eos_token_id = self.ids[eos]
        self.any_added = self.pattern(self.added)
        self.plain_added = self.pattern(plain)

    @staticmethod
    def pattern(texts):
        return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))) + "|.", re.DOTALL)

    def encode(self, text, add_special_tokens=True, split_special_tokens=False):
        pattern = self.plain_added if split_special_tokens else self.any_added
        tokens = [self.ids.get(piece) or ord(piece) for piece in pattern.findall(text)]
        if add_special_tokens and self.bos_token is not None:
            tokens.insert(0, self.bos_token_id)
        return tokens

    def decode(self, tokens, skip_special_tokens=False):
        return "".join(self.added[token - FIRST_ADDED] if token >= FIRST_ADDED else chr(token)
                       for token in ([tokens] if isinstance(tokens, int) else tokens))

    def convert_tokens_to_ids(self, token):
        return self.ids.get(token)


tokenizers = {}
renderers = {}


def add_tokenizer(name, folder=None, **characters):
    tokenizers[name] = AutoTokenizer.from_pretrained(folder) if folder else CharacterTokenizer(**characters)


def renderer_of(name, tokenizer):
    key = (name, tokenizer)
    if key not in renderers:
        renderers[key] = get_renderer(name, tokenizers[tokenizer])
    return renderers[key]


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


def write_example(example):
    model_input, weights = example
    return {"tokens": model_input.to_ints(), "weights": [float(weight) for weight in weights]}


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
    return renderer.build_generation_prompt(conversation(renderer, **given), role=role, prefill=prefill).to_ints()


def example(renderer, train_on, **given):
    return write_example(renderer.build_supervised_example(conversation(renderer, **given), TrainOnWhat(train_on)))


def examples(renderer, train_on, **given):
    messages = conversation(renderer, **given)
    return [write_example(each) for each in renderer.build_supervised_examples(messages, TrainOnWhat(train_on))]


def parse(renderer, tokens):
    message, termination = renderer.parse_response(list(tokens))
    return {"message": base.message_to_jsonable(message), "termination": str(termination)}


def stream(renderer, tokens):
    return [write_delta(delta) for delta in renderer.parse_response_streaming(list(tokens))]


def tools(renderer, tools, system):
    return [base.message_to_jsonable(message) for message in renderer.create_conversation_prefix_with_tools(tools, system)]


def properties(renderer):
    return {
        "stopSequences": renderer.get_stop_sequences(),
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


COMMANDS = {
    "version": lambda: version("tinker-cookbook"),
    "tokenizer": add_tokenizer,
    "run": run,
}

for line in sys.stdin:
    command = json.loads(line)
    try:
        answer = {"ok": COMMANDS[command.pop("command")](**command)}
    except Exception as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)

"""The package `renderers` as a judge of formats, over the vocabulary of characters. Used by formats.py."""

import json
from types import SimpleNamespace

from renderers import config_from_name, create_renderer

from character_tokenizer import CharacterTokenizer

# The name of ours, and the configuration that should write the same.
CONFIGURATIONS = {
    "qwen3": ("qwen3", {}),
    "qwen3_disable_thinking": ("qwen3", {"enable_thinking": False}),
    "qwen3_vl_instruct": ("qwen3-vl", {}),
    "qwen3_5": ("qwen3.5", {"enable_thinking": True}),
    "qwen3_5_disable_thinking": ("qwen3.5", {"enable_thinking": False}),
    "qwen3_5_preserve_thinking": ("qwen3.6", {"enable_thinking": True, "preserve_thinking": True}),
    "qwen3_8_xhigh_reasoning": ("qwen3.8", {"enable_thinking": True}),
    "qwen3_8_medium_reasoning": ("qwen3.8", {"enable_thinking": True, "reasoning_effort": "medium"}),
    "qwen3_8_low_reasoning": ("qwen3.8", {"enable_thinking": True, "reasoning_effort": "low"}),
    "qwen3_8_disable_thinking": ("qwen3.8", {"enable_thinking": False}),
    "nemotron3": ("nemotron-3", {}),
    "nemotron3_disable_thinking": ("nemotron-3", {"enable_thinking": False}),
    "nemotron3_low_thinking": ("nemotron-3", {"low_effort": True}),
    "nemotron3_preserve_thinking": ("nemotron-3", {"truncate_history_thinking": False}),
    "nemotron3_ultra": ("nemotron-3-ultra", {}),
    "nemotron3_ultra_disable_thinking": ("nemotron-3-ultra", {"enable_thinking": False}),
    "nemotron3_ultra_medium_thinking": ("nemotron-3-ultra", {"medium_effort": True}),
    "nemotron3_ultra_preserve_thinking": ("nemotron-3-ultra", {"truncate_history_thinking": False}),
    "glm5_3_max_reasoning": ("glm-5.3", {}),
    "glm5_3_high_reasoning": ("glm-5.3", {"reasoning_effort": "high"}),
    "glm5_3_low_reasoning": ("glm-5.3", {"reasoning_effort": "low"}),
    "kimi_k25": ("kimi-k2.5", {}),
    "kimi_k25_disable_thinking": ("kimi-k2.5", {"thinking": False}),
    "tml_v0": ("inkling", {}),
}
# Signs of the families' media, which the vocabulary of characters lacks and no text here has.
MEDIA = ["<|image_pad|>", "<|video_pad|>", "<|media_pad|>", "<|content_audio_input|>", "<|audio_end|>", "<|unused_200053|>", "<|unused_200054|>"]
made = {}


class Characters(CharacterTokenizer):
    """As the package asks its tokenizers: several tokens at once, and what is unknown."""

    unk_token_id = None
    unk_token = None

    def convert_tokens_to_ids(self, tokens):
        return self.ids.get(tokens) if isinstance(tokens, str) else [self.ids.get(each) for each in tokens]

    def encode(self, text, add_special_tokens=False, **_):
        return super().encode(text, add_special_tokens=add_special_tokens)

    def decode(self, tokens, **_):
        return super().decode(tokens)


def add(name, special, plain, bos, eos):
    file, settings = CONFIGURATIONS[name]
    tokenizer = Characters(special, [*plain, *MEDIA], bos, eos)
    config = type(config_from_name(file))(**settings)
    made[name] = SimpleNamespace(renderer=create_renderer(tokenizer, config), tokenizer=tokenizer)


def pieces(tokenizer, tokens, weights):
    """Runs of text and single signs, each as [text, is it a sign, weight]."""
    written = []
    for token, weight in zip(tokens, weights, strict=True):
        text, is_sign = tokenizer.decode([token]), token >= 0x110000
        last = written[-1] if written else None
        if last is None or is_sign or last[1] or last[2] != weight:
            written.append([text, is_sign, weight])
        else:
            last[0] += text
    return written


def read_arguments(name, messages):
    """Messages whose calls have their arguments as objects, which the templates print; Kimi's writes a text as it is."""
    if name.startswith("kimi"):
        return messages
    read = lambda call: {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
    return [{**message, "tool_calls": [read(call) for call in message["tool_calls"]]} if "tool_calls" in message else message
            for message in messages]


def prompt(name, messages, tools=None):
    tokenizer, renderer = made[name].tokenizer, made[name].renderer
    tokens = renderer.render_ids(read_arguments(name, messages), tools=tools, add_generation_prompt=True)
    return pieces(tokenizer, tokens, [0] * len(tokens))


def example(name, messages, tools=None):
    tokenizer, renderer = made[name].tokenizer, made[name].renderer
    rendered = renderer.render(read_arguments(name, messages), tools=tools)
    last = len(messages) - 1
    weights = [int(sampled and index == last)
               for sampled, index in zip(rendered.sampled_mask, rendered.message_indices, strict=True)]
    written = pieces(tokenizer, rendered.token_ids, weights)
    # The newline behind the last turn belongs to the next one.
    return written[:-1] if written[-1] == ["\n", False, 0] else written


def answer(name, answer, messages, tools=None):
    """An answer as runs of text and signs, behind the prompt of a conversation."""
    tokenizer, renderer = made[name].tokenizer, made[name].renderer
    tokens = [token for text, is_sign in answer
              for token in ([tokenizer.ids[text]] if is_sign else map(ord, text))]
    before = renderer.render_ids(read_arguments(name, messages), tools=tools, add_generation_prompt=True)
    read = renderer.parse_response(tokens, tools=tools, prompt_ids=before)
    return [{
        "content": [{"type": "thinking", "thinking": read.reasoning_content or ""}, {"type": "text", "text": read.content}],
        "tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}} for call in read.tool_calls],
        "statuses": [str(call.status) for call in read.tool_calls],
    }]

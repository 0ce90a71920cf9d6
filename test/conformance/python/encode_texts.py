"""Prints the tokens of each text of a JSON list, a line a text, as the Rust tokenizers give them."""

import json
import sys

from tokenizers import Tokenizer

tokenizer_file, texts_file = sys.argv[1:]
tokenizer = Tokenizer.from_file(tokenizer_file)
with open(texts_file, encoding="utf-8") as file:
    texts = json.load(file)
for first in range(0, len(texts), 1000):
    for encoding in tokenizer.encode_batch(texts[first : first + 1000], add_special_tokens=False):
        print(",".join(map(str, encoding.ids)))

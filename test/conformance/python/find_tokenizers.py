"""The ways to a tokenizer that docs/coming-from-python.md shows, from an empty working folder."""

import json
import os
import tempfile
import warnings

warnings.simplefilter("ignore")

import tinker
from transformers import AutoTokenizer

from download_tokenizer import download_tokenizer

MODEL = os.environ["MODEL"]
TEXT = "What is 2 + 3?"

try:
    from tinker_cookbook import tokenizer_utils
except ImportError:
    tokenizer_utils = None


def fails(action):
    try:
        action()
    except Exception:
        return True
    return False


service = tinker.ServiceClient()
training = service.create_lora_training_client(base_model=MODEL, rank=4)
sampler = service.create_sampling_client(base_model=MODEL)
found = {"on the server's machine": training.get_tokenizer().encode(TEXT)}
assert fails(sampler.get_tokenizer), "a hub has the model: these ways are not needed"
download_tokenizer(MODEL)
found["downloaded: TrainingClient"] = training.get_tokenizer().encode(TEXT)
found["downloaded: SamplingClient"] = sampler.get_tokenizer().encode(TEXT)
found["a folder"] = AutoTokenizer.from_pretrained(os.path.abspath(MODEL)).encode(TEXT)
if tokenizer_utils is not None:
    found["downloaded: the cookbook"] = tokenizer_utils.get_tokenizer(MODEL).encode(TEXT)
    folder = os.path.abspath(MODEL)
    os.chdir(tempfile.mkdtemp())
    tokenizer_utils.register_tokenizer(MODEL, lambda: AutoTokenizer.from_pretrained(folder))
    found["registered with the cookbook"] = tokenizer_utils.get_tokenizer(MODEL).encode(TEXT)
service.close("success").result()
print(json.dumps(found))

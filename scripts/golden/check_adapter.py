"""Reads a PEFT folder that tinkerts wrote and compares its logprobs with those tinkerts computed.
Usage: python scripts/golden/check_adapter.py <base model folder> <adapter folder> <safetensors with tokens and logprobs>"""

import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

base, adapter, expected_file = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
model = PeftModel.from_pretrained(model, adapter).eval()
expected = load_file(expected_file)
with torch.no_grad():
    logprobs = torch.log_softmax(model(expected["tokens"].long()[None]).logits[0], -1)
difference = (logprobs - expected["logprobs"]).abs().max() / logprobs.abs().max()
print(f"largest difference, relative to the largest logprob: {difference:.2e}")
sys.exit(0 if difference < 1e-4 else 1)

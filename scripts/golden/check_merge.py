"""Loads a folder that mergeAdapter wrote with transformers and compares its logits with those of base and adapter.
Where the base is not float32, the sum is rounded to the base's dtype first, as a merge must.
Usage: python scripts/golden/check_merge.py <base model folder> <adapter folder> <merged folder>"""

import sys

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

base, adapter, merged = sys.argv[1:]
dtype = AutoConfig.from_pretrained(base).dtype or torch.float32
tokens = torch.randint(0, 64, (1, 40), generator=torch.Generator().manual_seed(7))


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits(model):
    with torch.no_grad():
        return model(tokens).logits[0]


ours = load(merged)
assert AutoModelForCausalLM.from_pretrained(merged, dtype="auto").dtype == dtype, "the dtype changed"

model = load(base)
if model.config.tie_word_embeddings:
    # PEFT would merge a change of the head into the embedding as well.
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
model = PeftModel.from_pretrained(model, adapter).eval()
exact = logits(model)
if dtype != torch.float32:
    # In float64, so that the sum is rounded only once.
    model = model.double().merge_and_unload()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    model = model.float()
difference = (logits(ours) - logits(model)).abs().max().item()
moved = (exact - logits(load(base))).abs().max().item()
print(f"largest difference of logits: {difference:.2e} (the adapter moves them by {moved:.2e}; weights are {dtype})")
sys.exit(0 if difference < 1e-4 and moved > 1e-2 else 1)

"""Adapters as PEFT makes them, for a small random model, and the logprobs that PEFT computes with each.

foreign_adapters.py FOLDER SEED: base/ and a folder for each adapter; prints the prompt and the logprobs as JSON.
"""

import copy
import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config

ROOT = Path(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "two-modules": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    "patterns": dict(
        r=4,
        lora_alpha=8,
        target_modules=LINEAR,
        rank_pattern={"q_proj": 2, "layers.1.mlp.down_proj": 7},
        alpha_pattern={"k_proj": 3, "^.*up_proj": 5},
    ),
    "rslora": dict(r=4, lora_alpha=6, target_modules=LINEAR, use_rslora=True),
    "one-layer": dict(r=3, lora_alpha=9, target_modules=LINEAR, layers_to_transform=[1]),
    "tied-head": dict(r=4, lora_alpha=8, target_modules=["o_proj", "lm_head"]),
    "dora": dict(r=4, lora_alpha=8, target_modules=["q_proj"], use_dora=True),
}
config = Qwen3Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    tie_word_embeddings=True,
    initializer_range=0.2,
)
base = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
base.save_pretrained(ROOT / "base")
prompt = torch.randint(0, 64, (1, 30))
results = {}
for name, settings in CASES.items():
    model = get_peft_model(copy.deepcopy(base), LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
    model.eval().save_pretrained(ROOT / name)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(prompt).logits[0, :-1], -1)
    results[name] = logprobs[torch.arange(29), prompt[0, 1:]].tolist()
print(json.dumps({"prompt": prompt[0].tolist(), "logprobs": results}))

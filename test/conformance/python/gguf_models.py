"""Random small models of the architectures that have a form in GGUF, adapters for them, and transformers' logprobs.

gguf_models.py FOLDER TOKENIZER SEED: a folder for each model in FOLDER, with the files of TOKENIZER. Prints, as JSON, the
names of the models, those that this transformers does not know, and the tokens that were scored.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

folder, tokenizer, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

COMMON = dict(
    hidden_size=256,
    intermediate_size=320,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=512,
    max_position_embeddings=512,
    bos_token_id=None,
    eos_token_id=511,
    pad_token_id=509,
)
ROPE = dict(rope_type="default", rope_theta=10000.0)
HYBRID = dict(
    head_dim=64,
    num_hidden_layers=4,
    layer_types=["linear_attention"] * 3 + ["full_attention"],
    linear_num_key_heads=4,
    linear_num_value_heads=8,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    linear_conv_kernel_dim=4,
    rope_parameters=dict(ROPE, partial_rotary_factor=0.25, mrope_section=[3, 3, 2], mrope_interleaved=True),
)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
MODELS = {
    "llama": dict(
        model_type="llama",
        rope_parameters=dict(
            rope_type="llama3",
            rope_theta=500000.0,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
        tie_word_embeddings=True,
        attention_bias=True,
    ),
    "mistral": dict(model_type="mistral", head_dim=48, sliding_window=None),
    "qwen2": dict(model_type="qwen2"),
    "qwen3": dict(
        model_type="qwen3",
        head_dim=48,
        rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64
        ),
    ),
    "qwen3_moe": dict(model_type="qwen3_moe", head_dim=32, decoder_sparse_step=1, **EXPERTS),
    "gpt_oss": dict(
        model_type="gpt_oss",
        head_dim=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=16,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        # llama.cpp truncates the ends of YaRN's ramp; gpt-oss does not.
        rope_parameters=dict(
            rope_type="yarn",
            rope_theta=150000.0,
            factor=32.0,
            beta_fast=32.0,
            beta_slow=1.0,
            truncate=True,
            original_max_position_embeddings=4096,
        ),
        max_position_embeddings=131072,
    ),
    "qwen3_5": dict(model_type="qwen3_5_text", **HYBRID),
    "qwen3_5_moe": dict(
        model_type="qwen3_5_moe_text", shared_expert_intermediate_size=96, **{**EXPERTS, **HYBRID}
    ),
}


def random_model(name: str) -> Path:
    config = {**COMMON, **MODELS[name]}
    torch.manual_seed(seed)
    made = AutoConfig.for_model(config.pop("model_type"), **config)
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "A_log" in key:
                parameter.copy_(torch.rand_like(parameter) * 1.5)
            elif parameter.ndim == 1 or "bias" in key:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            else:
                parameter.copy_(torch.randn_like(parameter) * 0.06)
        logits = model(torch.tensor([tokens])).logits[0].double()
    target = folder / name
    model.save_pretrained(target)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / file, target)
    logprobs = torch.log_softmax(logits, -1).float()
    save_file({"logprobs": logprobs}, target / "golden.st")
    return target


def inside_vision_model(target: Path) -> None:
    """As the files of Qwen3.5 are published: the text part inside a model that sees."""
    config = json.loads((target / "config.json").read_text())
    outer = {
        "model_type": config["model_type"].removesuffix("_text"),
        "tie_word_embeddings": config["tie_word_embeddings"],
        "text_config": config,
    }
    (target / "config.json").write_text(json.dumps(outer))
    tensors = load_file(target / "model.safetensors")
    # Some versions of transformers write these names themselves.
    if not any(name.startswith("model.language_model.") for name in tensors):
        tensors = {name.replace("model.", "model.language_model.", 1): each for name, each in tensors.items()}
    save_file(tensors, target / "model.safetensors")


def adapter(target: Path, rank: int = 4) -> None:
    """LoRA as Tinker writes it for all linear layers and all experts."""
    outer = json.loads((target / "config.json").read_text())
    config = outer.get("text_config", outer)
    tensors = {}

    def add(module: str, *shapes: tuple[int, ...]) -> None:
        for side, shape in zip("AB", shapes):
            tensors[f"base_model.model.{module}.lora_{side}.weight"] = torch.randn(*shape) * 0.1

    with safe_open(target / "model.safetensors", "pt") as file:
        for name in file.keys():
            shape = file.get_slice(name).get_shape()
            module = name.removesuffix(".weight").replace("language_model.", "")
            skipped = ("embed_tokens", ".experts.", "router", "mlp.gate.", "shared_expert_gate")
            if module == name or len(shape) != 2 or any(part in f"{module}." for part in skipped):
                continue
            if module == "lm_head" and config.get("tie_word_embeddings"):
                continue
            if module.endswith("in_proj_qkv") and "text_config" in outer:
                keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
                sizes = {"q": keys, "k": keys, "v": shape[0] - 2 * keys}
                for part, size in sizes.items():
                    add(module.removesuffix("qkv") + part, (rank, shape[1]), (size, rank))
            else:
                add(module, (rank, shape[1]), (shape[0], rank))
    experts = config.get("num_experts") or config.get("num_local_experts")
    if experts:
        hidden = config["hidden_size"]
        size = config.get("moe_intermediate_size") or config["intermediate_size"]
        for layer in range(config["num_hidden_layers"]):
            path = f"model.layers.{layer}.mlp.experts."
            add(path + "w1", (1, rank, hidden), (experts, size, rank))
            add(path + "w3", (experts, rank, hidden), (experts, size, rank))
            add(path + "w2", (experts, rank, size), (1, hidden, rank))
    out = target / "adapter"
    out.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": "all-linear"}
    (out / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": str(target)}))


generator = torch.Generator().manual_seed(seed)
tokens = torch.randint(0, 500, (48,), generator=generator).tolist()
made, unknown = [], []
for name, settings in MODELS.items():
    try:
        AutoConfig.for_model(settings["model_type"])
    except ValueError:
        unknown.append(name)
        continue
    target = random_model(name)
    if name.startswith("qwen3_5"):
        inside_vision_model(target)
    adapter(target)
    made.append(name)
print(json.dumps({"made": made, "unknown": unknown, "tokens": tokens}))

"""Makes test/fixtures/engine: tiny random models, their logits, LoRA gradients and optimizer steps, by PyTorch,
transformers and PEFT.  Usage: npm run generate:golden:engine"""

import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

COMMON = dict(
    vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, eos_token_id=1, bos_token_id=0,
)
MODELS = {
    # head_dim is not hidden_size / heads; QK-norm; tied; one float32 file
    "qwen3": (Qwen3Config(**COMMON, head_dim=8, tie_word_embeddings=True, rope_theta=1e4), torch.float32, None),
    # RoPE scaling of Llama 3 (its wavelengths cross all three ranges here), biases, own head, float16 in shards
    "llama": (
        LlamaConfig(
            **COMMON, head_dim=8, tie_word_embeddings=False, attention_bias=True, rope_theta=1e4,
            rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                              original_max_position_embeddings=64),
        ),
        torch.float16, "8KB",
    ),
    # biases on q, k and v only; tied; bfloat16; head_dim left to be derived
    "qwen2": (Qwen2Config(**COMMON, tie_word_embeddings=True, rope_theta=1e4), torch.bfloat16, None),
}
RANK = 3
LENGTHS = [7, 1, 12, 5]
BETA = 0.07


def build(name, out):
    config, dtype, shard = MODELS[name]
    torch.manual_seed(len(name))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            elif parameter_name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
    folder = out / name
    saved = model.to(dtype)
    saved.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    return model, folder


def make_batch(generator):
    data = []
    for length in LENGTHS:
        data.append(dict(
            tokens=torch.randint(0, 64, (length,), generator=generator),
            targets=torch.randint(0, 64, (length,), generator=generator),
            weights=torch.rand(length, generator=generator) * (torch.rand(length, generator=generator) > 0.3),
            advantages=torch.randn(length, generator=generator),
            noise=0.4 * torch.randn(length, generator=generator),
            soft_targets=torch.randint(0, 64, (length, 3), generator=generator),
            soft_weights=torch.rand(length, 3, generator=generator),
            clip_low=0.7 + 0.2 * torch.rand(length, generator=generator),
            clip_high=1.05 + 0.2 * torch.rand(length, generator=generator),
        ))
    return data


def logprobs_of(model, tokens, targets):
    logits = model(tokens[None]).logits[0]
    return torch.log_softmax(logits, -1).gather(-1, targets.reshape(len(tokens), -1))


def loss_of(model, datum, name):
    if name == "cross_entropy_soft":
        return -(datum["soft_weights"] * logprobs_of(model, datum["tokens"], datum["soft_targets"])).sum()
    logprobs = logprobs_of(model, datum["tokens"], datum["targets"])[:, 0]
    if name == "cross_entropy":
        return -(datum["weights"] * logprobs).sum()
    advantages, old = datum["advantages"], datum["old"]
    ratio = torch.exp(logprobs - old)
    low, high = (datum["clip_low"], datum["clip_high"]) if name.endswith("_tokens") else (0.8, 1.2)
    clipped = torch.minimum(torch.maximum(ratio, torch.as_tensor(low)), torch.as_tensor(high))
    if name == "importance_sampling":
        return -(ratio * advantages).sum()
    if name.startswith("ppo"):
        return -torch.minimum(ratio * advantages, clipped * advantages).sum()
    if name.startswith("cispo"):
        return -(clipped.detach() * logprobs * advantages).sum()
    if name == "dro":
        return -(logprobs * advantages - 0.5 * BETA * (logprobs - old) ** 2).sum()
    raise ValueError(name)


LOSSES = ["cross_entropy", "cross_entropy_soft", "importance_sampling", "ppo", "ppo_tokens", "cispo", "cispo_tokens", "dro"]


FULL_TENSORS = ("embed_tokens.weight", "lm_head.weight", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.bias",
                "layers.1.self_attn.k_norm.weight", "layers.0.input_layernorm.weight", "layers.1.mlp.down_proj.weight", "model.norm.weight")


def train_in_full(folder, data, golden):
    """Three AdamW steps on all weights, matrices decaying, the mean cross-entropy clipped at norm 1."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    named = dict(model.named_parameters())
    matrices = [p for p in named.values() if p.ndim == 2]
    vectors = [p for p in named.values() if p.ndim == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.05), dict(params=vectors, weight_decay=0.0)],
                                  lr=2e-3, betas=(0.9, 0.98), eps=1e-8)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        total = sum(len(datum["tokens"]) for datum in data)
        loss = -sum(logprobs_of(model, datum["tokens"], datum["targets"]).sum() for datum in data) / total
        loss.backward()
        torch.nn.utils.clip_grad_norm_(named.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    golden["full_losses"] = torch.tensor(losses)
    for name, parameter in named.items():
        if name.endswith(FULL_TENSORS):
            golden[f"full_after.{name}"] = parameter.detach().clone()


def lora_parameters(model):
    return {
        name.replace(".default.weight", ".weight"): parameter
        for name, parameter in model.named_parameters() if "lora_" in name
    }


def main(out):
    for name in MODELS:
        model, folder = build(name, out)
        generator = torch.Generator().manual_seed(11)
        data = make_batch(generator)
        golden = {}
        for index, datum in enumerate(data):
            with torch.no_grad():
                golden[f"logits.{index}"] = model(datum["tokens"][None]).logits[0]
        train_in_full(folder, data, golden)
        peft = get_peft_model(model, LoraConfig(
            r=RANK, lora_alpha=32, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
        ))
        with torch.no_grad():
            for parameter_name, parameter in lora_parameters(peft).items():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.05 if "lora_B" in parameter_name else 0.3))
        peft.save_pretrained(folder / "adapter", save_embedding_layers=False)
        for index, datum in enumerate(data):
            with torch.no_grad():
                golden[f"adapted_logits.{index}"] = peft(datum["tokens"][None]).logits[0]
                datum["old"] = logprobs_of(peft, datum["tokens"], datum["targets"])[:, 0] + datum["noise"]
            for key, value in datum.items():
                if key != "noise":
                    golden[f"{key}.{index}"] = value
        for loss_name in LOSSES:
            peft.zero_grad()
            loss = sum(loss_of(peft, datum, loss_name) for datum in data)
            loss.backward()
            golden[f"loss.{loss_name}"] = loss.detach().reshape(1)
            for parameter_name, parameter in lora_parameters(peft).items():
                golden[f"gradient.{loss_name}.{parameter_name}"] = parameter.grad.clone()
        parameters = list(lora_parameters(peft).values())
        optimizer = torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        for step in range(5):
            optimizer.zero_grad()
            sum(loss_of(peft, datum, "cross_entropy") for datum in data).backward()
            # steps 0, 2 and 4 are clipped, 1 and 3 are not
            if step % 2 == 0:
                torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
        for parameter_name, parameter in lora_parameters(peft).items():
            golden[f"after_five_steps.{parameter_name}"] = parameter.detach().clone()
        save_file({key: value.contiguous() for key, value in golden.items()}, folder / "golden.safetensors")
        (folder / "golden.json").write_text(json.dumps(dict(lengths=LENGTHS, rank=RANK, beta=BETA, losses=LOSSES)) + "\n")
        for unused in ("README.md",):
            (folder / "adapter" / unused).unlink(missing_ok=True)


main(Path(sys.argv[1]))

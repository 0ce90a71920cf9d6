"""Small random models of the families that the cookbook merges, adapters for them, and what the cookbook makes of both.

weights.py FOLDER SEED: one folder a case, with base/, adapter/, and merged/ and served/ of the cookbook, or the error of
either in merged.txt or served.txt. Values of adapters are multiples of an eighth, so that every sum of products is exact
in float32, in whatever order it is computed; the cases named `real` have others.
"""

import json
import logging
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tinker_cookbook import weights
from tinker_cookbook.weights._mxfp4 import quantize_mxfp4
from tinker_cookbook.weights._packed_int4 import quantize_int4_group

logging.disable(logging.WARNING)
ROOT = Path(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))
RANK = 4
ALPHA = 8
BF16 = torch.bfloat16


def grid(*shape):
    return torch.randint(-8, 9, shape).float() / 8


def normal(*shape, dtype=BF16):
    return (torch.randn(*shape) / 4).to(dtype)


class Case:
    def __init__(self, name, config, values=grid):
        self.folder = ROOT / name
        self.base = self.folder / "base"
        self.base.mkdir(parents=True)
        self.config = config
        self.values = values
        self.adapter = {}
        (self.base / "tokenizer_config.json").write_text("{}")

    def pair(self, path, inputs, outputs, experts=None, shared=None, rank=RANK):
        """The two matrices of a module; `shared` is the side that all experts have in common."""
        first = lambda side: () if experts is None else (1,) if shared == side else (experts,)
        self.adapter[f"base_model.model.{path}.lora_A.weight"] = self.values(*first("a"), rank, inputs)
        self.adapter[f"base_model.model.{path}.lora_B.weight"] = self.values(*first("b"), outputs, rank)

    def placeholder(self, path):
        self.adapter[f"base_model.model.{path}.lora_A.weight"] = torch.zeros(0, 0, 0)
        self.adapter[f"base_model.model.{path}.lora_B.weight"] = torch.zeros(0, 0, 0)

    def write(self, tensors, shards=2):
        (self.base / "config.json").write_text(json.dumps(self.config, indent=2))
        names = list(tensors)
        per_shard = -(-len(names) // shards)
        index = {"metadata": {"total_size": 0}, "weight_map": {}}
        for i in range(shards):
            part = names[i * per_shard : (i + 1) * per_shard]
            file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
            save_file({name: tensors[name].contiguous() for name in part}, self.base / file, {"format": "pt"})
            index["weight_map"].update({name: file for name in part})
        if shards > 1:
            (self.base / "model.safetensors.index.json").write_text(json.dumps(index))

    def write_model(self, model):
        """Files as transformers writes them."""
        model.to(BF16).save_pretrained(self.base, max_shard_size="60KB")
        self.config = json.loads((self.base / "config.json").read_text())

    def shapes(self):
        shapes = {}
        for file in sorted(self.base.glob("*.safetensors")):
            with safe_open(file, "pt") as opened:
                for key in opened.keys():
                    shapes[key] = opened.get_slice(key).get_shape()
        return shapes

    def linear(self, weight, path, **options):
        outputs, inputs = self.shapes()[weight]
        self.pair(path, inputs, outputs, **options)

    def run(self, **quantized):
        folder = self.folder / "adapter"
        folder.mkdir()
        save_file({k: v.contiguous() for k, v in self.adapter.items()}, folder / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "base_model_name_or_path": "some/base"}
        (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": "all-linear"}))
        for name, build, options in [
            ("merged", weights.build_hf_model, quantized),
            ("served", weights.build_lora_adapter, {}),
        ]:
            try:
                build(
                    base_model=str(self.base),
                    adapter_path=str(folder),
                    output_path=str(self.folder / name),
                    **options,
                )
            except Exception as error:
                (self.folder / f"{name}.txt").write_text(f"{type(error).__name__}: {error}")


ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
SIZES = dict(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    tie_word_embeddings=False,
)
HIDDEN, INTER, EXPERTS = 64, 32, 3


def dense(name, kind, values=grid, head="model.unembed_tokens", dtype=None, trains_tied_head=False, **config):
    from transformers import AutoConfig, AutoModelForCausalLM

    case = Case(name, {}, values)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SIZES, **config}))
    if dtype is None:
        case.write_model(model)
    else:
        model.to(dtype).save_pretrained(case.base)
    for layer in range(2):
        for part in ATTENTION:
            module = f"model.layers.{layer}.self_attn.{part}"
            case.linear(f"{module}.weight", module)
        for part in MLP:
            module = f"model.layers.{layer}.mlp.{part}"
            case.linear(f"{module}.weight", module)
    if "lm_head.weight" in case.shapes():
        case.linear("lm_head.weight", head)
    elif trains_tied_head:
        case.linear("model.embed_tokens.weight", head)
    case.run()


def experts_of(case, path, inputs=HIDDEN, inter=INTER, count=EXPERTS, shared=("b", "a", None)):
    """w1 and w3 read the hidden state, w2 gives it back."""
    case.pair(f"{path}.w1", inputs, inter, count, shared[0])
    case.pair(f"{path}.w2", inter, inputs, count, shared[1])
    case.pair(f"{path}.w3", inputs, inter, count, shared[2])


def moe(name, kind, **config):
    from transformers import AutoConfig, AutoModelForCausalLM

    case = Case(name, {})
    settings = {**SIZES, "num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": INTER}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**settings, **config}))
    case.write_model(model)
    for layer in range(2):
        for part in ATTENTION:
            module = f"model.layers.{layer}.self_attn.{part}"
            case.linear(f"{module}.weight", module)
        experts_of(case, f"model.layers.{layer}.mlp.experts")
    case.run()


def fused_on_last(name):
    """Qwen3-VL: [experts, inputs, gate | up], inside a vision wrapper."""
    prefix = "model.language_model.layers.0"
    case = Case(name, {"model_type": "qwen3_vl_moe", "architectures": ["Qwen3VLMoeForConditionalGeneration"]})
    case.write(
        {
            "model.language_model.embed_tokens.weight": normal(96, HIDDEN),
            f"{prefix}.self_attn.q_proj.weight": normal(64, HIDDEN),
            f"{prefix}.mlp.experts.gate_up_proj": normal(EXPERTS, HIDDEN, 2 * INTER),
            f"{prefix}.mlp.experts.down_proj": normal(EXPERTS, INTER, HIDDEN),
            f"{prefix}.input_layernorm.weight": normal(HIDDEN),
            "model.visual.patch_embed.proj.weight": normal(8, 3, 2, 2),
            "lm_head.weight": normal(96, HIDDEN),
        }
    )
    case.pair("model.layers.0.self_attn.q_proj", HIDDEN, 64)
    experts_of(case, "model.layers.0.mlp.experts")
    case.pair("model.unembed_tokens", HIDDEN, 96)
    case.run()


def qwen3_5(name, has_experts):
    """Linear attention with one matrix for queries, keys and values of unequal sizes, inside a vision wrapper."""
    kind = "qwen3_5_moe" if has_experts else "qwen3_5"
    prefix = "model.language_model.layers"
    case = Case(name, {"model_type": kind, "tie_word_embeddings": False, "text_config": {}})
    tensors = {"model.language_model.embed_tokens.weight": normal(96, HIDDEN)}
    for layer in range(2):
        at = f"{prefix}.{layer}"
        if layer == 0:
            tensors[f"{at}.linear_attn.in_proj_qkv.weight"] = normal(32 + 32 + 48, HIDDEN)
            tensors[f"{at}.linear_attn.in_proj_z.weight"] = normal(48, HIDDEN)
            tensors[f"{at}.linear_attn.out_proj.weight"] = normal(HIDDEN, 48)
            tensors[f"{at}.linear_attn.A_log"] = torch.randn(4)
            tensors[f"{at}.linear_attn.conv1d.weight"] = normal(112, 1, 4)
        else:
            tensors[f"{at}.self_attn.q_proj.weight"] = normal(128, HIDDEN)
            tensors[f"{at}.self_attn.o_proj.weight"] = normal(HIDDEN, 64)
        if has_experts:
            tensors[f"{at}.mlp.experts.gate_up_proj"] = normal(EXPERTS, 2 * INTER, HIDDEN)
            tensors[f"{at}.mlp.experts.down_proj"] = normal(EXPERTS, HIDDEN, INTER)
            tensors[f"{at}.mlp.shared_expert.up_proj.weight"] = normal(INTER, HIDDEN)
        else:
            tensors[f"{at}.mlp.up_proj.weight"] = normal(96, HIDDEN)
    tensors["model.visual.blocks.0.attn.qkv.weight"] = normal(24, 8)
    tensors["lm_head.weight"] = normal(96, HIDDEN)
    case.write(tensors)
    at = "model.layers"
    for part, rows in [("q", 32), ("k", 32), ("v", 48)]:
        case.pair(f"{at}.0.linear_attn.in_proj_{part}", HIDDEN, rows)
    case.pair(f"{at}.0.linear_attn.in_proj_z", HIDDEN, 48)
    case.pair(f"{at}.0.linear_attn.out_proj", 48, HIDDEN)
    case.pair(f"{at}.1.self_attn.q_proj", HIDDEN, 128)
    case.pair(f"{at}.1.self_attn.o_proj", 64, HIDDEN)
    for layer in range(2):
        if has_experts:
            experts_of(case, f"{at}.{layer}.mlp.experts", shared=("a", None, "b"))
            case.pair(f"{at}.{layer}.mlp.shared_expert.up_proj", HIDDEN, INTER)
        else:
            case.pair(f"{at}.{layer}.mlp.up_proj", HIDDEN, 96)
    case.pair("model.unembed_tokens", HIDDEN, 96)
    case.run()


def gpt_oss(name, packed):
    case = Case(name, {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]})
    at = "model.layers.0"
    gate_up, down = normal(EXPERTS, HIDDEN, 2 * HIDDEN), normal(EXPERTS, HIDDEN, HIDDEN)
    tensors = {
        "model.embed_tokens.weight": normal(96, HIDDEN),
        f"{at}.self_attn.q_proj.weight": normal(64, HIDDEN),
        f"{at}.self_attn.q_proj.bias": normal(64),
        f"{at}.self_attn.sinks": normal(4),
        f"{at}.mlp.experts.gate_up_proj_bias": normal(EXPERTS, 2 * HIDDEN),
        f"{at}.mlp.router.weight": normal(EXPERTS, HIDDEN),
        "lm_head.weight": normal(96, HIDDEN),
    }
    if packed:
        case.config["quantization_config"] = {"quant_method": "mxfp4"}
        for part, weight in [("gate_up_proj", gate_up), ("down_proj", down)]:
            blocks, scales = quantize_mxfp4(weight.transpose(-1, -2).contiguous())
            tensors[f"{at}.mlp.experts.{part}_blocks"] = blocks
            tensors[f"{at}.mlp.experts.{part}_scales"] = scales
        case.write(tensors, shards=1)
    else:
        tensors[f"{at}.mlp.experts.gate_up_proj"] = gate_up
        tensors[f"{at}.mlp.experts.down_proj"] = down
        case.write(tensors)
    case.pair("model.layers.0.attn.q_proj", HIDDEN, 64)
    experts_of(case, "model.layers.0.mlp.experts", inter=HIDDEN)
    case.pair("model.unembed_tokens", HIDDEN, 96)
    case.run()


def deepseek(name, fp8=None):
    """`fp8`: "experts" writes the routed experts in 8 bits, "native" reads such a base, too."""
    case = Case(name, {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]})
    at = "model.layers.0"
    wide = 160 if fp8 else HIDDEN
    tensors = {
        "model.embed_tokens.weight": normal(96, wide),
        f"{at}.self_attn.kv_a_proj_with_mqa.weight": normal(144, wide),
        f"{at}.mlp.shared_experts.up_proj.weight": normal(INTER, wide),
        f"{at}.mlp.gate.weight": normal(EXPERTS, wide),
        f"{at}.input_layernorm.weight": normal(wide),
        "lm_head.weight": normal(96, wide),
    }
    for expert in range(EXPERTS):
        tensors[f"{at}.mlp.experts.{expert}.gate_proj.weight"] = normal(INTER, wide)
        tensors[f"{at}.mlp.experts.{expert}.up_proj.weight"] = normal(INTER, wide)
        tensors[f"{at}.mlp.experts.{expert}.down_proj.weight"] = normal(wide, INTER)
    if fp8 == "native":
        from tinker_cookbook.weights._export._quantized import quantize_blockwise

        block = [64, 32]
        case.config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": block}
        for key in [key for key in tensors if "experts" in key or "kv_a" in key]:
            tensors[key], tensors[f"{key}_scale_inv"] = quantize_blockwise(tensors[key], tuple(block))
    case.write(dict(sorted(tensors.items())))
    case.pair(f"{at}.self_attn.kv_a_proj_with_mqa", wide, 144)
    case.pair(f"{at}.mlp.shared_experts.up_proj", wide, INTER)
    experts_of(case, f"{at}.mlp.experts", inputs=wide, shared=(None, None, None))
    case.pair("model.unembed_tokens", wide, 96)
    case.run(**({"quantize": "experts-fp8", "serving_format": "vllm"} if fp8 else {}))


def nemotron(name):
    case = Case(name, {"model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"]})
    at = "backbone.layers"
    tensors = {
        "backbone.embeddings.weight": normal(96, HIDDEN),
        f"{at}.0.mixer.in_proj.weight": normal(48 + 80 + 4, HIDDEN),
        f"{at}.0.mixer.out_proj.weight": normal(HIDDEN, 48),
        f"{at}.1.mixer.q_proj.weight": normal(64, HIDDEN),
        f"{at}.2.mixer.shared_experts.up_proj.weight": normal(INTER, HIDDEN),
        "lm_head.weight": normal(96, HIDDEN),
    }
    for expert in range(EXPERTS):
        tensors[f"{at}.2.mixer.experts.{expert}.up_proj.weight"] = normal(INTER, HIDDEN)
        tensors[f"{at}.2.mixer.experts.{expert}.down_proj.weight"] = normal(HIDDEN, INTER)
    case.write(tensors)
    at = "model.layers"
    case.pair(f"{at}.0.mixer.gate_proj", HIDDEN, 48)
    case.pair(f"{at}.0.mixer.x_proj", HIDDEN, 80)
    case.pair(f"{at}.0.mixer.out_proj", 48, HIDDEN)
    case.pair(f"{at}.1.mixer.q_proj", HIDDEN, 64)
    case.pair(f"{at}.2.mixer.experts.w1", HIDDEN, INTER, EXPERTS, "a")
    case.pair(f"{at}.2.mixer.experts.w2", INTER, HIDDEN, EXPERTS, "b")
    case.placeholder(f"{at}.2.mixer.experts.w3")
    case.pair(f"{at}.2.mixer.shared_experts.up_proj", HIDDEN, INTER)
    case.pair("model.lm_head", HIDDEN, 96)
    case.run()


def kimi(name):
    """INT4 experts inside a vision wrapper with a prefix of its own."""
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
    }
    case = Case(name, {"model_type": "kimi_k25", "text_config": {"quantization_config": quantization}})
    at = "language_model.model.layers.0"
    tensors = {
        "language_model.model.embed_tokens.weight": normal(96, HIDDEN),
        f"{at}.self_attn.q_a_proj.weight": normal(48, HIDDEN),
        f"{at}.mlp.shared_experts.up_proj.weight": normal(INTER, HIDDEN),
        "vision_tower.patch_embed.proj.weight": normal(8, 3, 2, 2),
        "language_model.lm_head.weight": normal(96, HIDDEN),
    }
    for expert in range(EXPERTS):
        for part, shape in [("gate", (INTER, HIDDEN)), ("up", (INTER, HIDDEN)), ("down", (HIDDEN, INTER))]:
            key = f"{at}.mlp.experts.{expert}.{part}_proj"
            packed, scale = quantize_int4_group(normal(*shape), 32)
            tensors[f"{key}.weight_packed"] = packed
            tensors[f"{key}.weight_scale"] = scale
            tensors[f"{key}.weight_shape"] = torch.tensor(shape, dtype=torch.int32)
    case.write(tensors, shards=1)
    case.pair("model.layers.0.self_attn.q_a_proj", HIDDEN, 48)
    case.pair("model.layers.0.mlp.shared_experts.up_proj", HIDDEN, INTER)
    experts_of(case, "model.layers.0.mlp.experts")
    case.pair("model.unembed_tokens", HIDDEN, 96)
    case.run()


dense("llama", "llama")
dense("qwen2", "qwen2", head="lm_head")
dense("qwen3", "qwen3")
dense("qwen3-float32-real", "qwen3", values=lambda *shape: torch.randn(*shape), dtype=torch.float32)
dense("qwen3-float16", "qwen3", dtype=torch.float16)
dense("qwen3-tied", "qwen3", tie_word_embeddings=True)
dense("qwen3-tied-head", "qwen3", tie_word_embeddings=True, trains_tied_head=True)
moe("qwen3-moe", "qwen3_moe")
fused_on_last("qwen3-vl-moe")
qwen3_5("qwen3.5", False)
qwen3_5("qwen3.5-moe", True)
gpt_oss("gpt-oss", False)
gpt_oss("gpt-oss-mxfp4", True)
deepseek("deepseek")
deepseek("deepseek-fp8-experts", "experts")
deepseek("deepseek-fp8-native", "native")
nemotron("nemotron")
kimi("kimi-int4")

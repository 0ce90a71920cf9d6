"""The peers of the engine on a GPU: PyTorch eager and transformers, random weights, one JSON line.

    python3 peer.py [--parts train,generate,products] [--device cuda] [--tiny]
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

RANK = ALPHA = 32
PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"}
# Qwen3-0.6B's shape.
SHAPE = dict(vocab_size=151936, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, intermediate_size=3072)
TINY = dict(vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=128)
PRODUCTS = [(1024, 1024, 1024), (2048, 4096, 1024), (4096, 4096, 4096), (2048, 12288, 4096), (8192, 3072, 1024), (8192, 1024, 3072)]


class LoRA(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.a = torch.nn.Parameter(torch.empty(RANK, base.in_features, device=base.weight.device, dtype=torch.float32))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, RANK, device=base.weight.device, dtype=torch.float32))
        torch.nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b) * (ALPHA / RANK)


def qwen3(device, tiny, lora):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(**(TINY if tiny else SHAPE), tie_word_embeddings=True, max_position_embeddings=40960, rope_theta=1e6, use_cache=not lora)
    with torch.device(device):
        model = Qwen3ForCausalLM(config).float()
    model.requires_grad_(False)
    if lora:
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if name in PROJECTIONS:
                    setattr(module, name, LoRA(child))
    return model


class Clock:
    def __init__(self, device):
        self.sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def time(self, work):
        self.sync()
        start = time.perf_counter()
        work()
        self.sync()
        return time.perf_counter() - start

    def median(self, work, warmups, times):
        for _ in range(warmups):
            work()
        return statistics.median(self.time(work) for _ in range(times))


def tf32(on):
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on
    torch.set_float32_matmul_precision("high" if on else "highest")


def train(device, tiny, clock):
    batch, length = (2, 16) if tiny else (16, 512)
    model = qwen3(device, tiny, lora=True).train()
    adapters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(adapters, lr=1e-4)
    tokens = torch.randint(0, model.config.vocab_size, (batch, length + 1), device=device)

    def step():
        logits = model(tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step.loss = loss.detach()

    out = {"tokens": batch * length, "adapter_parameters": sum(p.numel() for p in adapters), "attention": model.config._attn_implementation}
    for name, on in (("f32", False), ("tf32", True)):
        tf32(on)
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        seconds = clock.median(step, warmups=2, times=5)
        out[name] = {"tokens_per_s": round(batch * length / seconds), "step_ms": round(seconds * 1e3, 1), "loss": round(step.loss.item(), 4)}
        if device == "cuda":
            out[name]["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
    return out


def generate(device, tiny, clock):
    new, prompt = (4, 8) if tiny else (64, 32)
    tf32(False)
    model = qwen3(device, tiny, lora=False).eval()
    out = {}
    for batch in (1, 64):
        ids = torch.randint(0, model.config.vocab_size, (batch, prompt), device=device)

        @torch.inference_mode()
        def work():
            # Without an end-of-sequence token every sequence runs to the full length.
            answer = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0)
            assert answer.shape == (batch, prompt + new), answer.shape

        seconds = clock.median(work, warmups=1, times=2)
        out[f"batch_{batch}"] = {"tokens_per_s": round(batch * new / seconds, 1), "ms_per_step": round(seconds / new * 1e3, 2)}
    return out


def products(device, tiny, clock):
    out = {}
    for m, n, k in PRODUCTS:
        if tiny:
            m, n, k = m // 64, n // 64, k // 64
        row = out[f"{m}x{n}x{k}"] = {}
        a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        for name, on, dtype in (("f32", False, torch.float32), ("tf32", True, torch.float32), ("bf16", False, torch.bfloat16)):
            tf32(on)
            left, right = a.to(dtype), b.to(dtype)
            result = torch.mm(left, right)
            # About 20 ms of work at 50 TFLOP/s per timing, so that the launch does not count.
            times = 2 if tiny else max(10, min(400, int(1e12 / (2 * m * n * k))))

            def work():
                for _ in range(times):
                    torch.mm(left, right, out=result)

            seconds = clock.median(work, warmups=1, times=5) / times
            row[name] = round(2 * m * n * k / seconds / 1e12, 1)
    return out


def main():
    parts = {"train": train, "generate": generate, "products": products}
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default=",".join(parts))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script itself")
    args = parser.parse_args()
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu"}
    for name in args.parts.split(","):
        start = time.perf_counter()
        try:
            result[name] = parts[name](args.device, args.tiny, Clock(args.device))
        except Exception as error:  # one part's failure must not cost the figures of the others
            result[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
        result[name]["s"] = round(time.perf_counter() - start, 1)
        if args.device == "cuda":
            torch.cuda.empty_cache()
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""PyTorch's side of bench/engine.mjs: the same models, batches and lengths, on the CPU. Prints one JSON line."""

import json
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, DynamicCache, Qwen3Config

request = json.loads(sys.argv[1])
torch.set_num_threads(request["threads"])
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]


def best_seconds(action, rounds):
    action()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def training_rate(model, parameters, rows, length, vocabulary, rounds):
    tokens = torch.randint(0, vocabulary, (rows, length))
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)

    def step():
        optimizer.zero_grad()
        logits = model(tokens).logits
        torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), tokens.reshape(-1)).backward()
        optimizer.step()

    return rows * length / best_seconds(step, rounds)


def sampling_rate(model, batch, prompt, steps, vocabulary, rounds):
    tokens = torch.randint(0, vocabulary, (batch, prompt))

    def decode():
        cache = DynamicCache()
        current = tokens
        for _ in range(steps):
            logits = model(current, past_key_values=cache, use_cache=True).logits[:, -1]
            current = torch.multinomial(torch.softmax(logits, -1), 1)

    with torch.no_grad():
        return batch * steps / best_seconds(decode, rounds)


config = {key: value for key, value in request["config"].items() if key != "model_type"}
vocabulary, rounds = config["vocab_size"], request["rounds"]
model = AutoModelForCausalLM.from_config(Qwen3Config(**config))
result = {
    f"sample{batch}": sampling_rate(model.eval(), batch, request["prompt"], request["steps"], vocabulary, rounds)
    for batch in (1, 16)
}
shape = (request["rows"], request["length"], vocabulary, rounds)
result["full"] = training_rate(model.train(), model.parameters(), *shape)
adapted = get_peft_model(model, LoraConfig(r=32, lora_alpha=32, target_modules=TARGETS))
result["lora"] = training_rate(adapted, [p for p in adapted.parameters() if p.requires_grad], *shape)
print(json.dumps(result))

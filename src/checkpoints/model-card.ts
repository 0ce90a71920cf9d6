import type { WeightsInfo } from "../wire/index.js";

/** Writes the README.md of a pushed adapter. Later pushes recognise the checkpoint by `tinker_path`. */
export function modelCard(card: { path: string; repo: string; weights: WeightsInfo | undefined }): string {
  const { path, repo, weights } = card;
  const baseModel = weights?.baseModel;
  const tags = ["tinker", "peft", "lora"];
  if (baseModel !== undefined) tags.push(`base_model:adapter:${baseModel}`);
  const details = [`- Checkpoint: \`${path}\``, `- Base model: ${baseModel ?? "unknown"}`];
  if (typeof weights?.loraRank === "number") details.push(`- LoRA rank: ${weights.loraRank}`);
  const trained = [
    weights?.trainAttn === true ? "attention" : "",
    weights?.trainMlp === true ? "MLP" : "",
    weights?.trainUnembed === true ? "unembedding" : "",
  ].filter((part) => part !== "");
  if (trained.length > 0) details.push(`- Trained parts: ${trained.join(", ")}`);
  return [
    "---",
    ...(baseModel === undefined ? [] : [`base_model: ${scalar(baseModel)}`]),
    "library_name: peft",
    "tags:",
    ...tags.map((tag) => `- ${scalar(tag)}`),
    `tinker_path: ${scalar(path)}`,
    "---",
    "",
    `# ${repo.split("/").at(-1)}`,
    "",
    "A LoRA adapter in PEFT format, trained with Tinker.",
    "",
    ...details,
    "",
    "```python",
    "from peft import AutoPeftModelForCausalLM",
    "",
    `model = AutoPeftModelForCausalLM.from_pretrained(${JSON.stringify(repo)})`,
    "```",
    "",
  ].join("\n");
}

/** Writes the README.md of a merged model. */
export function mergedModelCard(card: {
  name: string;
  baseModel: string;
  adapter: string;
  rank: number;
  alpha: number;
  modules: number;
}): string {
  return [
    "---",
    `base_model: ${scalar(card.baseModel)}`,
    "base_model_relation: finetune",
    "library_name: transformers",
    "tags:",
    "- tinker",
    "- merged",
    "---",
    "",
    `# ${card.name}`,
    "",
    "A merged model: the weights of a base model with a LoRA adapter added to them. It loads without the adapter.",
    "",
    `- Base model: ${card.baseModel}`,
    `- Adapter: ${card.adapter}`,
    `- LoRA rank ${card.rank}, alpha ${card.alpha}; ${card.modules} weight matrices changed`,
    "",
    "The base model's card states its license, data and limitations.",
    "",
  ].join("\n");
}

/** The checkpoint that a model card names: by its own entry, else by the first path in the text. */
export function pathInCard(card: string): string | undefined {
  const entry = /^tinker_path:[ \t]*(\S.*?)[ \t\r]*$/m.exec(card)?.[1];
  if (entry?.startsWith('"')) {
    try {
      return String(JSON.parse(entry));
    } catch {
      return entry;
    }
  }
  return entry ?? /tinker:\/\/[^\s`"']+/.exec(card)?.[0];
}

/** Plain if YAML reads it as the same text, else quoted. */
function scalar(text: string): string {
  return /^[A-Za-z][\w./-]*(?::[\w./-]+)*$/.test(text) ? text : JSON.stringify(text);
}

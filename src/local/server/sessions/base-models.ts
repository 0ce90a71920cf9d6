import type { ModelInput } from "../../../wire/sampling/model-input.js";
import type { BaseModelInfo } from "../../engine/engine.js";
import { invalid } from "../http/http-error.js";

/** The models that can be trained and sampled from, by name. */
export type BaseModels = ReadonlyMap<string, BaseModelInfo>;

/** A base model of this server, by the name that a field gives. */
export function findBaseModel(models: BaseModels, name: string, field: string): BaseModelInfo {
  const info = models.get(name);
  if (info !== undefined) return info;
  throw invalid(
    field,
    `must be a model of this server (${[...models.keys()].join(", ")}), got ${JSON.stringify(name)}`,
  );
}

/** The tokens of a text input, checked against the model; other kinds of chunks are refused. */
export function textTokens(input: ModelInput, field: string, model: BaseModelInfo): Int32Array {
  for (const [index, chunk] of input.chunks.entries()) {
    if (chunk.type === "encoded_text") continue;
    const kind = chunk.type === "dmel" ? "audio" : "image";
    throw invalid(
      `${field}.chunks[${index}]`,
      `is an ${kind} chunk (${chunk.type}); this server's models read text only`,
    );
  }
  const chunks = input.chunks as readonly { readonly tokens: Int32Array }[];
  const tokens = chunks.length === 1 ? chunks[0]!.tokens : concatenate(chunks.map((chunk) => chunk.tokens));
  if (tokens.length === 0) throw invalid(field, "has no tokens");
  if (tokens.length > model.maxContextLength) {
    throw invalid(
      field,
      `has ${tokens.length} tokens; ${model.name} reads at most ${model.maxContextLength}`,
    );
  }
  checkTokens(tokens, field, model);
  return tokens;
}

function concatenate(parts: readonly Int32Array[]): Int32Array {
  const whole = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

/** Refuses tokens that the model does not have. */
export function checkTokens(tokens: ArrayLike<number>, field: string, model: BaseModelInfo): void {
  for (let index = 0; index < tokens.length; index += 1) {
    const token = tokens[index]!;
    if (token < 0 || token >= model.vocabSize) {
      throw invalid(
        field,
        `has token ${token} at position ${index}; ${model.name} has tokens 0 to ${model.vocabSize - 1}`,
      );
    }
  }
}

import { TinkerError } from "../errors.js";

/** Facts about a model from the server that help to find its tokenizer. */
export interface TokenizerModel {
  /** As in `Qwen/Qwen3-8B`, `org/model/variant` or `org/model:tag`. */
  readonly modelName: string;
  /** The tokenizer's own id, where the server names one; rules over the model's name. */
  readonly tokenizerId?: string | null | undefined;
}

/** A tokenizer on the hub, or a folder. */
export interface TokenizerReference {
  readonly id: string;
  readonly revision: string;
}

/** Tokenizers that are read from tiktoken files, each of one known commit. */
const PINNED: Readonly<Record<string, TokenizerReference>> = {
  "moonshotai/Kimi-K2-Thinking": pinned("Kimi-K2-Thinking", "612681931a8c906ddb349f8ad0f582cb552189cd"),
  "moonshotai/Kimi-K2.5": pinned("Kimi-K2.5", "4d01dfe0332d63057c186e0b262165819efb6611"),
  "moonshotai/Kimi-K2.5-Text-Only": pinned("Kimi-K2.5", "4d01dfe0332d63057c186e0b262165819efb6611"),
  "moonshotai/Kimi-K2.6": pinned("Kimi-K2.6", "b5aabbfb20227ed42becbf5541dbffd213942c58"),
  "moonshotai/Kimi-K3": pinned("Kimi-K3", "f831ab66814297da540d832a5235f8e904f29d06"),
};

function pinned(name: string, revision: string): TokenizerReference {
  return { id: `moonshotai/${name}`, revision };
}

/** Where the tokenizer of a model is, by the rules of the official SDK. */
export function resolveTokenizerId({ modelName, tokenizerId }: TokenizerModel): TokenizerReference {
  const id = tokenizerId == null ? idFromModelName(beforeColon(modelName)) : withoutTag(tokenizerId);
  if (id === "") throw new TinkerError("The server names neither a model nor a tokenizer.");
  if (/^(?:TML|thinkingmachines)\//.test(id)) {
    throw new TinkerError(
      `The tokenizer of ${id} is not public, so tokens of this model cannot be made here. For Thinking ` +
        "Machines' own models there are renderers in Python instead.",
    );
  }
  return PINNED[id] ?? { id, revision: "main" };
}

function idFromModelName(name: string): string {
  // The original repositories are gated.
  if (name.startsWith("meta-llama/Llama-3")) return "thinkingmachineslabinc/meta-llama-3-instruct-tokenizer";
  const parts = name.split("/");
  return parts.length === 3 ? `${parts[0]}/${parts[1]}` : name;
}

const beforeColon = (text: string): string => text.split(":", 1)[0] ?? "";

/** A folder on a Windows drive has a colon as well. */
const withoutTag = (id: string): string => (/^[A-Za-z]:[\\/]/.test(id) ? id : beforeColon(id));

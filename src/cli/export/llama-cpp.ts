import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { errorCode } from "../../files.node.js";
import { UsageError } from "../context.js";

/** A GGUF file in llama.cpp. */
export interface LlamaModel extends AsyncDisposable {
  /** For each token but the first: the likeliest one in its place, and its own logprob. */
  score(
    tokens: readonly number[],
  ): Promise<readonly { readonly likeliest: number; readonly logprob: number }[]>;
}

/** The part of `node-llama-cpp` that is used. */
export interface LlamaPackage {
  getLlama(options: object): Promise<{
    loadModel(options: object): Promise<{
      createContext(options: object): Promise<{
        getSequence(): {
          clearHistory(): Promise<void>;
          controlledEvaluate(input: readonly (readonly [number, object])[]): Promise<readonly Evaluated[]>;
        };
      }>;
    }>;
    dispose(): Promise<void>;
  }>;
}

interface Evaluated {
  readonly next: { readonly logits: ReadonlyMap<number, number>; readonly totalLogitWeight: number };
}

/** Loads a GGUF file with the `node-llama-cpp` that the user has installed. */
export async function openLlamaModel(file: string, contextSize: number): Promise<LlamaModel> {
  const { getLlama } = await llamaPackage();
  const llama = await getLlama({ build: "never", skipDownload: true, logLevel: "error" });
  try {
    const model = await llama.loadModel({ modelPath: file });
    const context = await model.createContext({ contextSize });
    const sequence = context.getSequence();
    return {
      async score(tokens) {
        await sequence.clearHistory();
        const found = await sequence.controlledEvaluate(
          tokens.slice(0, -1).map((token, index) => {
            const logits = { filter: { tokens: [tokens[index + 1]!], includeMax: true } };
            return [token, { generateNext: { logits, totalLogitWeight: true } }] as const;
          }),
        );
        return found.map(({ next }, index) => {
          const [[likeliest, most]] = [...next.logits].sort((a, b) => b[1] - a[1]) as [[number, number]];
          const own = next.logits.get(tokens[index + 1]!)!;
          return { likeliest, logprob: own - most - Math.log(next.totalLogitWeight) };
        });
      },
      [Symbol.asyncDispose]: () => llama.dispose(),
    };
  } catch (error) {
    await llama.dispose();
    throw error;
  }
}

/** Loads the package; where it is not installed, says how to install it. */
export async function llamaPackage(): Promise<LlamaPackage> {
  const name = "node-llama-cpp";
  try {
    return (await import(name)) as LlamaPackage;
  } catch (error) {
    if (errorCode(error) !== "ERR_MODULE_NOT_FOUND") throw error;
  }
  // A command that was installed elsewhere does not see the packages of this folder.
  const local = resolve("node_modules", name, "dist/index.js");
  if (existsSync(local)) return (await import(pathToFileURL(local).href)) as LlamaPackage;
  throw new UsageError("--check runs the result in llama.cpp: install it with `npm install node-llama-cpp`");
}

import { TinkerError } from "../errors.js";
import type { TokenizerFiles } from "./files.js";
import { node, packageFile } from "./node-builtins.js";
import type { EncodeOptions } from "./text-tokenizer.js";

export interface EncodedBatch {
  /** The tokens of all texts, one after the other. */
  readonly tokens: Int32Array;
  readonly lengths: Int32Array;
}

export interface BatchThread {
  /** A batch that takes too long ends the thread. */
  encode(texts: readonly string[], options: EncodeOptions): Promise<EncodedBatch>;
  readonly hasEnded: boolean;
  end(): Promise<void>;
}

/** The tokenizers of published models take a second or two for the longest batch. */
const MAX_MS = 60_000;

/**
 * The thread's program. Plain source text, because a worker file would have to be found from dist, from sources
 * and from a bundle alike; the compiled tokenizers are imported from the installed package.
 */
const THREAD_SOURCE = `
const { parentPort, workerData } = process.getBuiltinModule("worker_threads");
let encode;
parentPort.on("message", ({ number, texts, options }) => {
  try {
    const encoded = texts.map((text) => encode(text, options));
    const lengths = Int32Array.from(encoded, ({ length }) => length);
    const tokens = new Int32Array(lengths.reduce((sum, length) => sum + length, 0));
    let start = 0;
    for (const ids of encoded) { tokens.set(ids, start); start += ids.length; }
    parentPort.postMessage({ number, tokens, lengths }, [tokens.buffer, lengths.buffer]);
  } catch (error) {
    parentPort.postMessage({ number, error: String(error?.message ?? error) });
  }
});
import(workerData.module).then(({ createTextTokenizer }) => {
  ({ encode } = createTextTokenizer(workerData.files, "the tokenizer's files"));
  parentPort.postMessage({ number: 0 });
});
`;

type Answer = { readonly number: number } & (EncodedBatch | { readonly error: string });

interface Waiting {
  resolve(batch: EncodedBatch): void;
  reject(error: Error): void;
}

/** A thread with a tokenizer of its own; undefined where there can be none. */
export async function startBatchThread(
  files: TokenizerFiles,
  maxMs = MAX_MS,
): Promise<BatchThread | undefined> {
  const file = packageFile("dist/bundle/tokenizer-files.js");
  if (node === undefined || file === undefined) return undefined;
  const workerData = { module: node.url.pathToFileURL(file).href, files };
  const { Worker } = node.threads;
  let worker: InstanceType<typeof Worker>;
  try {
    worker = new Worker(THREAD_SOURCE, { eval: true, workerData, execArgv: [], name: "tinkerts-tokenizer" });
  } catch {
    return undefined;
  }

  const waiting = new Map<number, Waiting>();
  let numbers = 0;
  let failure: Error | undefined;
  /** Keeps the process alive as long as an answer is due, and no longer. */
  const answerTo = (number: number) =>
    new Promise<EncodedBatch>((resolve, reject) => {
      if (failure !== undefined) return reject(failure);
      waiting.set(number, { resolve, reject });
      worker.ref();
    });
  const fail = (error: Error) => {
    failure ??= error;
    for (const one of waiting.values()) one.reject(failure);
    waiting.clear();
  };
  worker.on("message", (answer: Answer) => {
    const one = waiting.get(answer.number);
    waiting.delete(answer.number);
    if (waiting.size === 0) worker.unref();
    if ("error" in answer) one?.reject(new TinkerError(answer.error));
    else one?.resolve(answer);
  });
  worker.on("error", fail);
  worker.on("exit", () => fail(new TinkerError("The tokenizer's thread has ended.")));

  try {
    await answerTo(0);
  } catch {
    return undefined;
  }
  return {
    encode(texts, options) {
      const number = ++numbers;
      const answer = answerTo(number);
      worker.postMessage({ number, texts, options });
      const timer = setTimeout(() => {
        fail(new TinkerError(`Tokenizing a text took longer than ${maxMs / 1000} s and was given up.`));
        void worker.terminate();
      }, maxMs);
      return answer.finally(() => clearTimeout(timer));
    },
    get hasEnded() {
      return failure !== undefined;
    },
    async end() {
      await worker.terminate();
    },
  };
}

import { readFile } from "node:fs/promises";
import { addAbortSignal } from "node:stream";
import { text as readAll } from "node:stream/consumers";
import { Option } from "commander";
import type { SampledSequence, SampleStream } from "tinkerts";
import type { Tokenizer } from "../../tokenizers/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import type { Format } from "../global-options.js";
import { wholeNumber } from "../option-values.js";
import { type Column, printableLines, printJson, printList } from "../output/index.js";
import { whileWaiting } from "../output/waiting.js";
import {
  addModelOptions,
  addSamplingOptions,
  modelName,
  openSampler,
  type SamplingOptions,
  samplingParams,
} from "../sampling-options.js";

interface SampleOptions extends SamplingOptions {
  readonly prompt?: string;
  readonly promptFile?: string;
  readonly numSamples: number;
  readonly logprobs?: true;
}

interface Sample {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[] | null;
  readonly stopReason: string;
}

const DEFAULT_MAX_TOKENS = 128;
const MAX_SAMPLES = 1024;
const STDIN = "-";

export const define: CommandModule["define"] = (command, context) => {
  addModelOptions(command)
    .option("--prompt <text>", "what the model goes on from")
    .addOption(
      new Option(
        "--prompt-file <file>",
        "a file with the prompt; - or neither of the two: the standard input",
      ).conflicts("prompt"),
    );
  addSamplingOptions(command, { maxTokens: DEFAULT_MAX_TOKENS })
    .option("--num-samples <number>", "how many answers", wholeNumber(1, MAX_SAMPLES), 1)
    .option("--logprobs", "show each token with its logprob, instead of the text; JSON always has both")
    .action((options: SampleOptions) => sample(options, context));
};

async function sample(options: SampleOptions, context: CommandContext): Promise<void> {
  const model = modelName(options);
  const signal = context.interruption();
  const prompt = await readPrompt(options, context, signal);
  const { format } = context.globals();
  const service = await context.serviceClient();
  const { stderr } = context;
  const waiting = `waiting for ${model}`;
  const { sampling, tokenizer } = await whileWaiting(stderr, waiting, openSampler(service, options, signal));
  const promptTokens = tokenizer.encode(prompt);
  const { numSamples } = options;
  const request = { prompt: promptTokens, numSamples, samplingParams: samplingParams(options) };
  if (numSamples === 1 && format === "table" && !options.logprobs)
    return printAsItComes(context, waiting, textOf(sampling.stream(request, { signal }), tokenizer));
  const { sequences } = await whileWaiting(stderr, waiting, sampling.sample(request, { signal }));
  const samples = sequences.map((sequence) => readSample(sequence, tokenizer));
  if (format === "json") printJson(context, { model, prompt, promptTokens, samples });
  else if (options.logprobs)
    printList(context, tokenRows(samples, tokenizer), tokenView(samples.length, format));
  else if (format === "csv") printList(context, samples, { columns: SAMPLE_COLUMNS, empty: "no samples" });
  else printTexts(context, samples);
}

async function readPrompt(
  { prompt, promptFile }: SampleOptions,
  { stdin }: CommandContext,
  signal: AbortSignal,
): Promise<string> {
  if (prompt === undefined && promptFile === undefined && stdin.isTTY) {
    throw new UsageError(
      "which prompt? Give --prompt TEXT or --prompt-file FILE, or send it to the standard input",
    );
  }
  const text =
    prompt ??
    // Editors and `echo` end a text with a new line that is not meant for the model.
    (promptFile === undefined || promptFile === STDIN
      ? await readAll(addAbortSignal(signal, stdin))
      : await readPromptFile(promptFile)
    ).replace(/\r?\n$/, "");
  if (text === "") throw new UsageError("the prompt is empty: a model needs something to go on from");
  return text;
}

async function readPromptFile(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw new UsageError(`--prompt-file cannot be read: ${(error as Error).message}`);
  }
}

function readSample({ tokens, logprobs, stopReason }: SampledSequence, tokenizer: Tokenizer): Sample {
  return {
    text: tokenizer.decode(tokens, { skipSpecialTokens: true }),
    tokens: [...tokens],
    logprobs: logprobs === null ? null : [...logprobs],
    stopReason,
  };
}

async function* textOf(stream: SampleStream, tokenizer: Tokenizer): AsyncGenerator<string, void, undefined> {
  const text = tokenizer.decodeStream({ skipSpecialTokens: true });
  for await (const { token } of stream) yield text.push(token);
  yield text.end();
}

async function printAsItComes(
  { stdout, stderr }: CommandContext,
  waiting: string,
  texts: AsyncGenerator<string, void, undefined>,
): Promise<void> {
  let last = "";
  let next = await whileWaiting(stderr, waiting, texts.next());
  try {
    for (; !next.done; next = await texts.next()) {
      stdout.write(stdout.isTTY ? printableLines(next.value) : next.value);
      last = next.value || last;
    }
  } finally {
    if (!last.endsWith("\n")) stdout.write("\n");
  }
}

function printTexts({ stdout }: CommandContext, samples: readonly Sample[]): void {
  for (const [index, { text: said, stopReason }] of samples.entries()) {
    const text = stdout.isTTY ? printableLines(said) : said;
    if (samples.length > 1) stdout.write(`--- ${index + 1} of ${samples.length} (${stopReason})\n`);
    stdout.write(text.endsWith("\n") ? text : `${text}\n`);
  }
}

const SAMPLE_COLUMNS: readonly Column<Sample>[] = [
  { header: "Text", name: "text", value: ({ text }) => text },
  { header: "Tokens", name: "tokens", value: ({ tokens }) => tokens.length },
  { header: "Stop reason", name: "stopReason", value: ({ stopReason }) => stopReason },
];

interface TokenRow {
  readonly sample: number;
  readonly token: number;
  readonly text: string;
  readonly logprob: number | undefined;
}

function tokenRows(samples: readonly Sample[], tokenizer: Tokenizer): TokenRow[] {
  return samples.flatMap(({ tokens, logprobs }, index) =>
    tokens.map((token, position) => ({
      sample: index + 1,
      token,
      text: tokenizer.decode([token]),
      logprob: logprobs?.[position],
    })),
  );
}

function tokenView(samples: number, format: Format) {
  const isTable = format === "table";
  const columns: readonly Column<TokenRow>[] = [
    { header: "Sample", name: "sample", value: ({ sample }) => sample, kind: "number" },
    { header: "Token", name: "token", value: ({ token }) => token, kind: "number" },
    // Many a token is a space or a new line, which quotes make visible.
    { header: "Text", name: "text", value: ({ text }) => (isTable ? JSON.stringify(text) : text) },
    {
      header: "Logprob",
      name: "logprob",
      value: ({ logprob }) => (isTable ? logprob?.toFixed(4) : logprob),
    },
  ];
  return { columns: samples > 1 ? columns : columns.slice(1), empty: "no tokens" };
}

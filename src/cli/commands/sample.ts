import { readFile } from "node:fs/promises";
import { addAbortSignal } from "node:stream";
import { text as readAll } from "node:stream/consumers";
import { Option } from "commander";
import type { SampledSequence, SampleStream } from "tinkerts";
import { CHAT_OPTIONS } from "../../cookbook/chat/chat.js";
import type { Tokenizer } from "../../tokenizers/index.js";
import { defaulting, option } from "../../wire/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import type { Format } from "../global-options.js";
import { openService } from "../local-service.js";
import { namedModel } from "../named-model.js";
import { wholeNumber } from "../option-values.js";
import { type Column, printableLines, printJson, printList } from "../output/index.js";
import { whileWaiting } from "../output/waiting.js";
import {
  addModelOptions,
  addSamplingOptions,
  openSampler,
  type SamplingOptions,
  samplingParamsFrom,
} from "../sampling-options.js";

interface SampleOptions extends SamplingOptions, DeviceOptions {
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

/** How `sample` draws tokens: like `chat`, except for the number of tokens and the stop texts. */
const SAMPLE_OPTIONS = {
  ...CHAT_OPTIONS,
  maxTokens: defaulting(CHAT_OPTIONS.maxTokens, 128),
  stop: option(CHAT_OPTIONS.stop, CHAT_OPTIONS.stop.notes.help, { otherwise: "the model's own end" }),
};
const MAX_SAMPLES = 1024;
const STDIN = "-";

export const define: CommandModule["define"] = (command, context) => {
  addModelOptions(command)
    .option("--prompt <text>", "text to continue")
    .addOption(
      new Option(
        "--prompt-file <file>",
        "file with the prompt; - (and the default): standard input",
      ).conflicts("prompt"),
    );
  addSamplingOptions(command, SAMPLE_OPTIONS)
    .option(
      "--num-samples <number>",
      CHAT_OPTIONS.numSamples.notes.help,
      wholeNumber(1, MAX_SAMPLES),
      CHAT_OPTIONS.numSamples.fallback,
    )
    .option("--logprobs", "show each token with its logprob, instead of the text; JSON always has both");
  addDeviceOptions(command).action((options: SampleOptions) => sample(options, context));
};

async function sample(options: SampleOptions, context: CommandContext): Promise<void> {
  const named = await namedModel(options.model);
  const { name: model } = named;
  const signal = context.interruption();
  const prompt = await readPrompt(options, context, signal);
  const { format } = context.globals();
  await using opened = await openService(context, named, options);
  const { stderr } = context;
  const waiting = `waiting for ${model}`;
  const opening = openSampler(opened.service, opened.model, signal);
  const { sampling, tokenizer } = await whileWaiting(stderr, waiting, opening);
  const promptTokens = tokenizer.encode(prompt);
  const { numSamples } = options;
  const request = {
    prompt: promptTokens,
    numSamples,
    samplingParams: samplingParamsFrom(options, SAMPLE_OPTIONS),
  };
  if (numSamples === 1 && format === "table" && !options.logprobs)
    return await printAsItComes(context, waiting, textOf(sampling.stream(request, { signal }), tokenizer));
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
    // Editors and `echo` end a text with a line break that is not meant for the model.
    (promptFile === undefined || promptFile === STDIN
      ? await readAll(addAbortSignal(signal, stdin))
      : await readPromptFile(promptFile)
    ).replace(/\r?\n$/, "");
  if (text === "") throw new UsageError("the prompt is empty: give the model some text to continue");
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
  { header: "Text", name: "text" },
  { header: "Tokens", name: "tokens", value: ({ tokens }) => tokens.length },
  { header: "Stop reason", name: "stopReason" },
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
    { header: "Sample", name: "sample", kind: "number" },
    { header: "Token", name: "token", kind: "number" },
    // Many tokens are a space or a line break; quotes make them visible.
    { header: "Text", name: "text", value: ({ text }) => (isTable ? JSON.stringify(text) : text) },
    { header: "Logprob", name: "logprob", value: ({ logprob }) => (isTable ? logprob?.toFixed(4) : logprob) },
  ];
  return { columns: samples > 1 ? columns : columns.slice(1), empty: "no tokens" };
}

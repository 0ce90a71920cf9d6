import { createInterface } from "node:readline";
import { CHAT_OPTIONS } from "../../cookbook/chat/chat.js";
import { APIUserAbortError, isUserError } from "../../errors.js";
import { rendererNames } from "../../renderers/index.js";
import { type Answer, ChatConversation } from "../chat/conversation.js";
import {
  type ChatState,
  isSlashCommand,
  runSlashCommand,
  slashCommandNames,
} from "../chat/slash-commands.js";
import { TerminalInput } from "../chat/terminal-input.js";
import type { CommandContext, CommandModule } from "../context.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { openService } from "../local-service.js";
import { namedModel } from "../named-model.js";
import { printableJson, printableLines } from "../output/index.js";
import { whileWaiting } from "../output/waiting.js";
import {
  addModelOptions,
  addSamplingOptions,
  openSampler,
  type SamplingOptions,
  samplingParamsFrom,
} from "../sampling-options.js";

interface ChatOptions extends SamplingOptions, DeviceOptions {
  readonly system?: string;
}

/** Source of messages, which can also interrupt an answer. */
interface Input {
  read(): Promise<string | undefined>;
  during<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T>;
  close(): void;
}

export const define: CommandModule["define"] = (command, context) => {
  addModelOptions(command).option("--system <text>", "the system message");
  addSamplingOptions(command, CHAT_OPTIONS);
  addDeviceOptions(command).action((options: ChatOptions) => chat(options, context));
};

async function chat(options: ChatOptions, context: CommandContext): Promise<void> {
  const { stdin, stderr } = context;
  const interrupted = context.interruption();
  await using opened = await openService(context, await namedModel(options.model), options);
  const { name: model } = opened.model;
  const opening = openSampler(opened.service, opened.model, interrupted);
  const sampler = await whileWaiting(stderr, `opening ${model}`, opening);
  const baseModel = await sampler.sampling.getBaseModel({ signal: interrupted });
  if (!sampler.tokenizer.hasChatTemplate && rendererNames(baseModel).length === 0) {
    throw new Error(
      `${model} has no chat template, so it cannot take part in a conversation: let it continue a text with tinkerts sample`,
    );
  }
  const conversation = new ChatConversation(
    sampler,
    samplingParamsFrom(options, CHAT_OPTIONS),
    options.system,
  );
  const state: ChatState = { model, conversation, saved: new Set() };
  const isTerminal = stdin.isTTY === true && stderr.isTTY === true;
  const input = isTerminal
    ? new TerminalInput(stdin, stderr, slashCommandNames)
    : pipedInput(stdin, interrupted);
  const close = () => input.close();
  interrupted.addEventListener("abort", close);
  if (isTerminal) context.notify(`Talking to ${model}. /help lists commands, Ctrl-D leaves.\n`);
  try {
    for (;;) {
      const message = await input.read();
      interrupted.throwIfAborted();
      if (message === undefined) return;
      if (isSlashCommand(message)) {
        const reply = await runSlashCommand(state, message);
        if (reply === undefined) return;
        context.notify(reply);
      } else if (message.trim() !== "") {
        try {
          await input.during((signal) =>
            show(conversation.ask(message, AbortSignal.any([signal, interrupted])), options, context),
          );
        } catch (error) {
          if (!isTerminal || interrupted.aborted) throw error;
          context.notify(await whyNoAnswer(error, context));
        }
      }
      if (isTerminal) stderr.write("\n");
    }
  } finally {
    interrupted.removeEventListener("abort", close);
    input.close();
  }
}

async function show(
  answering: AsyncGenerator<string, Answer, undefined>,
  { maxTokens }: ChatOptions,
  context: CommandContext,
): Promise<void> {
  const { stdout, stderr, globals } = context;
  const isJson = globals().format === "json";
  let isLineOpen = false;
  let answer: Answer;
  try {
    let next = await whileWaiting(stderr, "answering", answering.next());
    for (; !next.done; next = await answering.next()) {
      if (isJson) continue;
      stdout.write(stdout.isTTY ? printableLines(next.value) : next.value);
      isLineOpen = true;
    }
    answer = next.value;
    const { text: content, tokens, stopReason } = answer;
    if (isJson) stdout.write(printableJson({ role: "assistant", content, tokens, stopReason }));
    isLineOpen = true;
  } finally {
    if (isLineOpen) stdout.write("\n");
  }
  if (answer.stopReason !== "length") return;
  const advice =
    maxTokens === undefined ? "there is no room for more; /reset makes some" : "see --max-tokens";
  context.notify(`(cut off after ${answer.tokens} tokens: ${advice})`);
}

async function whyNoAnswer(error: unknown, context: CommandContext): Promise<string> {
  if (error instanceof APIUserAbortError) return "(stopped; your message is not part of the conversation)";
  const { explainFailure } = await import("../failure.js");
  const why = `error: ${explainFailure(error, context.globals())}`;
  return isUserError(error) ? `${why}\n(If the conversation has become too long, /reset makes room.)` : why;
}

/** Each line of a pipe or a file is a message. */
function pipedInput(stdin: NodeJS.ReadStream, interrupted: AbortSignal): Input {
  const readline = createInterface({ input: stdin, terminal: false });
  const lines = readline[Symbol.asyncIterator]();
  return {
    read: async () => {
      const { value, done } = await lines.next();
      return done ? undefined : value;
    },
    during: (work) => work(interrupted),
    close: () => readline.close(),
  };
}

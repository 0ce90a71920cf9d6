import {
  type AnswerEvent,
  Answers,
  type AnswerUsage,
  addPiece,
  type WholeAnswer,
  wholeAnswers,
} from "../renderers/answer-events.js";
import type { AnswerPiece } from "../renderers/answer-reader.js";
import { ConversationError, chooseRenderer } from "../renderers/prepare-answer.js";
import type { TokenSettings, TokenSource } from "../renderers/token-source.js";
import type { ChatModel, ChatTurn, SentConversation } from "./chat-model.js";
import { type Refuse, withoutField } from "./lenience.js";
import { inWordsOf, type ParamNames, worded, wordedError } from "./param-error.js";
import { checkTextLength } from "./prompt-room.js";

/** How to open a request's conversation. */
export interface OpenTurnOptions {
  readonly names: ParamNames;
  readonly refuse: Refuse;
}

/** Opens a conversation with a model; errors use the field names of the request's API. */
export function openTurn(
  model: ChatModel,
  read: () => SentConversation,
  { names, refuse }: OpenTurnOptions,
): ChatTurn {
  return inWordsOf(names, model.name, () => {
    let conversation: SentConversation = { ...read(), endTokens: model.endTokens };
    checkTextLength(
      JSON.stringify([conversation.messages, conversation.tools]).length,
      model,
      names.messages,
    );
    for (;;) {
      try {
        const turn = model.open(conversation, chooseRenderer(model.formats, conversation));
        return {
          ...turn,
          source: wordedSource(turn.source, names),
          answered: (answer) => turn.answered?.(answer),
        };
      } catch (error) {
        if (!(error instanceof ConversationError)) throw error;
        const simpler = withoutField(conversation, error);
        if (simpler === undefined) throw error;
        refuse(worded(error, names));
        conversation = simpler;
      }
    }
  });
}

/** Wraps a source so that its errors use the field names of the request's API. */
function wordedSource(source: TokenSource, names: ParamNames): TokenSource {
  return {
    async *sample(prepared, settings) {
      try {
        yield* source.sample(prepared, settings);
      } catch (error) {
        throw wordedError(error, names);
      }
    },
  };
}

/** Other ids, besides those of its calls, under which a client may send an answer back. */
export type IdsOf = (pieces: readonly AnswerPiece[]) => readonly string[];

/** The answers of a turn while they are sampled; each answer is reported to `turn` before its last event is passed on. */
export class TurnAnswers implements AsyncIterable<AnswerEvent> {
  readonly usage: AnswerUsage;
  readonly #numSamples: number;
  readonly #events: AsyncGenerator<AnswerEvent, void, undefined>;

  constructor(turn: ChatTurn, settings: TokenSettings, idsOf: IdsOf = () => []) {
    const sampled: { readonly tokens: number[]; readonly logprobs: number[] }[] = [];
    const of = (sample: number) => (sampled[sample] ??= { tokens: [], logprobs: [] });
    const source: TokenSource = {
      async *sample(prepared, given) {
        for await (const event of turn.source.sample(prepared, given)) {
          if (event.type === "token") {
            of(event.sample).tokens.push(event.scored[0]);
            of(event.sample).logprobs.push(event.scored[1]);
          }
          yield event;
        }
      },
    };
    const answers = new Answers(source, turn.prepared, settings);
    async function* recorded(): AsyncGenerator<AnswerEvent, void, undefined> {
      const pieces = new Map<number, AnswerPiece[]>();
      for await (const event of answers) {
        const { sample, piece, stopReason } = event;
        const said = pieces.get(sample) ?? [];
        pieces.set(sample, said);
        if (piece !== undefined) addPiece(said, piece);
        if (stopReason !== undefined) {
          const calls = said.flatMap((each) =>
            each.type === "calls" ? each.calls.flatMap(({ id }) => id ?? []) : [],
          );
          const ids = [...calls, ...idsOf(said)];
          await turn.answered?.({ sample, ...of(sample), stopReason, pieces: said, ids });
        }
        yield event;
      }
    }
    this.usage = answers.usage;
    this.#numSamples = settings.numSamples ?? 1;
    this.#events = recorded();
  }

  [Symbol.asyncIterator](): AsyncGenerator<AnswerEvent, void, undefined> {
    return this.#events;
  }

  /** Every answer, once all have ended. */
  whole(): Promise<readonly WholeAnswer[]> {
    return wholeAnswers(this, this.#numSamples);
  }
}

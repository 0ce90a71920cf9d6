import type {
  Message,
  ParsedResponse,
  Renderer,
  RendererTokenizer,
  SupervisedExample,
  TrainOn,
} from "../../src/renderers/index.js";

/** The text of an example, with `⟦` and `⟧` around trained tokens. */
export function markedText(tokenizer: RendererTokenizer, { input, weights }: SupervisedExample): string {
  const tokens = input.toInts();
  let text = "";
  for (let start = 0, end: number; start < tokens.length; start = end) {
    end = start + 1;
    while (end < tokens.length && weights[end] === weights[start]) end++;
    const run = tokenizer.decode(tokens.slice(start, end));
    text += weights[start] === 1 ? `⟦${run}⟧` : run;
  }
  return text;
}

/** The example of a conversation, marked. */
export function exampleText(renderer: Renderer, messages: readonly Message[], trainOn?: TrainOn): string {
  return markedText(renderer.tokenizer, renderer.buildSupervisedExample(messages, trainOn));
}

export function promptText(renderer: Renderer, messages: readonly Message[]): string {
  return renderer.tokenizer.decode(renderer.buildPrompt(messages).toInts());
}

export function parseText(renderer: Renderer, text: string): ParsedResponse {
  return renderer.parseResponse(renderer.tokenizer.encode(text));
}

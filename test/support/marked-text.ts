import type { RendererTokenizer, SupervisedExample } from "../../src/cookbook/renderers/index.js";

/** The text of an example, with `⟦` and `⟧` around what is learnt. */
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

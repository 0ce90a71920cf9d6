/**
 * Tokenizers and chat templates: text to tokens and back, a conversation in the model's own format, text while it
 * is sampled, and a large batch in the background.
 *
 * `getTokenizer()` finds the tokenizer of a client's model: in the package for tinkerts/nano, else in the Hugging Face
 * cache, on the server, or on the hub.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import { ModelInput, ServiceClient } from "tinkerts";
import { startLocalBackend } from "tinkerts/local";

const baseModel = "tinkerts/nano"; // on another server, one of its models

await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
await using service = new ServiceClient(backend);
const sampler = await service.createSamplingClient({ baseModel });
const tokenizer = await sampler.getTokenizer();

console.log("1. Text and tokens");
const text = "naïve café 東京 👩‍🚀 \t x  ==  y;\n";
const tokens = tokenizer.encode(text);
console.log(`  ${JSON.stringify(text)} is ${tokens.length} tokens: ${tokens.slice(0, 12).join(" ")} ...`);
assert.equal(tokenizer.decode(tokens), text, "the text did not come back");
assert.deepEqual(ModelInput.fromText(text, tokenizer).toInts(), tokens);

console.log("2. Tokens one by one: a character of several tokens is held back until it is whole");
const stream = tokenizer.decodeStream();
const pieces = tokens.map((token) => stream.push(token)).concat(stream.end());
console.log(`  ${JSON.stringify(pieces.filter((piece) => piece !== "").slice(0, 14))} ...`);
assert.equal(pieces.join(""), text);
assert.ok(!pieces.some((piece) => piece.includes("\ufffd")), "half a character came out");

console.log("3. A conversation");
const messages = [
  { role: "user", content: "What is the capital of France?" },
  { role: "assistant", content: "The capital of France is Paris." },
  { role: "user", content: "What does a cow say?" },
];
const written = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true, tokenize: false });
console.log(written.replaceAll(/^/gm, "  | "));
const prompt = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
const { sequences } = await sampler.sample({ prompt, samplingParams: { maxTokens: 24, temperature: 0 } });
const answer = tokenizer.decode(sequences[0]!.tokens, { skipSpecialTokens: true });
console.log(`  The model: ${answer}`);
assert.equal(answer, "A cow says moo.");

console.log("4. A large batch, in a thread of its own");
const texts = Array.from({ length: 4_000 }, (_, index) => `${index}: ${written}`);
let longestPauseMs = 0;
let last = performance.now();
const ticking = setInterval(() => {
  const now = performance.now();
  longestPauseMs = Math.max(longestPauseMs, now - last);
  last = now;
}, 5);
const started = performance.now();
const batch = await tokenizer.encodeBatch(texts);
const seconds = (performance.now() - started) / 1000;
clearInterval(ticking);
const total = batch.reduce((sum, each) => sum + each.length, 0);
console.log(
  `  ${total} tokens in ${seconds.toFixed(1)} s, ${Math.round(total / seconds)} a second; ` +
    `this thread was never busy for more than ${Math.round(longestPauseMs)} ms`,
);
assert.equal(batch.length, texts.length);
assert.deepEqual(batch[7], tokenizer.encode(texts[7]!));
assert.ok(longestPauseMs < (1000 * seconds) / 2, "the batch stood in the way of everything else");

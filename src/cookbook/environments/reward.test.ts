import { afterEach, expect, it, vi } from "vitest";
import { RoleColonRenderer } from "../../renderers/role-colon.js";
import { type Environment, type ProblemAnswer, RewardError } from "./index.js";
import { problemGroups } from "./problem-groups.js";

/** One token a character. */
const tokenizer = {
  encode: (text: string) => Array.from(text, (character) => character.codePointAt(0)!),
  decode: (tokens: ArrayLike<number>) => String.fromCodePoint(...Array.from(tokens)),
};
const problems = [{ prompt: "1 + 1?", answer: "2" }];

/** What becomes of the answer "3". */
async function graded(reward: (answer: ProblemAnswer<(typeof problems)[0]>) => number | Promise<number>) {
  const renderer = new RoleColonRenderer(tokenizer);
  const group = await problemGroups({ problems, reward, renderer, groupSize: 1 }).group(0);
  const [environment] = (await group!.makeEnvironments()) as readonly Environment[];
  const { signal } = new AbortController();
  await environment!.start({ signal, limits: {}, toolExecution: "parallel" });
  const tokens = Int32Array.from(tokenizer.encode(" 3\n\nUser:"));
  return environment!.step({ tokens, logprobs: new Float32Array(tokens.length), stopReason: "stop" });
}

afterEach(() => void vi.useRealTimers());

it("a reward that throws names its error, the problem and the answer, and keeps the stack", async () => {
  const own = new TypeError("no such field");
  const failing = graded(() => {
    throw own;
  });
  await expect(failing).rejects.toThrow(RewardError);
  await expect(failing).rejects.toMatchObject({
    message:
      'The reward failed: TypeError: no such field\n  problem: {"prompt":"1 + 1?","answer":"2"}\n  answer: "3"',
    cause: own,
  });
});

it("a reward that hangs is an error after 15 minutes, and its signal aborts", async () => {
  vi.useFakeTimers();
  let heard: AbortSignal | undefined;
  const failing = expect(
    graded(({ signal }) => {
      heard = signal;
      return new Promise(() => {});
    }),
  ).rejects.toThrow(/^The reward took more than 900000 ms\.\n {2}problem: /);
  await vi.advanceTimersByTimeAsync(899_000);
  expect(heard?.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(1_000);
  await failing;
  expect(heard?.aborted).toBe(true);
});

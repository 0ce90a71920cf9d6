import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isSameNumber } from "../../src/cookbook/evaluation/extract.js";
import {
  evaluate,
  extractBoxed,
  extractChoice,
  extractNumber,
  numberMatch,
  passAtK,
} from "../../src/cookbook/evaluation/index.js";
import { ServiceClient } from "../../src/index.js";
import { talkingServer } from "../cli/talking-engine.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import { CASES as ALL_CASES, SEED } from "./judged.js";
import { Random } from "./random.js";

explainSkip("evaluation.test.ts");

const CASES = 10 * ALL_CASES;

const PIECES = [
  ...["\\boxed{", "{", "}", "\\text{ cm}", "\\frac", "$", "####", "**", "answer is ", "Answer: ", "the "],
  ...["42", "-3.5", "1,234", "12.", "0", ".", ",", "-", " ", "\n", "A", "B", "(C)", "d", "E", "x", "é", "😀"],
];
const EXPECTED = ["42", "-3.5", "1,234", "12", "0", "x", ""];

describe.skipIf(!hasPythonModule("tinker_cookbook", "evaluation.test.ts"))(
  "evaluation, judged by the Python cookbook",
  () => {
    let judge: Judge;
    beforeAll(() => {
      judge = new Judge("evaluation.py");
    });
    afterAll(() => judge?.[Symbol.asyncDispose]());

    it(`finds the same numbers and letters in ${CASES} answers`, async () => {
      const random = new Random(SEED);
      const cases = Array.from({ length: CASES }, () => {
        const pieces = Array.from({ length: random.integer(0, 14) }, () => random.pick(PIECES));
        return [pieces.join(""), random.pick(EXPECTED)] as const;
      });
      const judged = await judge.ask<object[]>("extract", { cases });
      const ours = cases.map(([text, expected]) => ({
        boxed: extractBoxed(text) ?? null,
        number: extractNumber(text) ?? "",
        choice: extractChoice(text) ?? "",
        isRight: isSameNumber(extractNumber(text) ?? "", expected),
      }));
      const differences = cases
        .map(([text], index) => ({ text, ours: ours[index], judged: judged[index] }))
        .filter(({ ours, judged }) => JSON.stringify(ours) !== JSON.stringify(judged));
      expect(differences.slice(0, 3)).toEqual([]);
    });

    it("computes the same pass@k", async () => {
      const cases = [1, 2, 7, 64, 300].flatMap((n) =>
        [0, 1, n >> 1, n].flatMap((correct) => [1, Math.ceil(n / 3), n].map((k) => [n, correct, k] as const)),
      );
      const judged = await judge.ask<number[]>("pass_at_k", { cases });
      for (const [index, [n, correct, k]] of cases.entries()) {
        expect(passAtK(n, correct, k), `${n}, ${correct}, ${k}`).toBeCloseTo(judged[index]!, 12);
      }
    });

    it("reads our results", async () => {
      const folder = mkdtempSync(join(tmpdir(), "tinkerts-results-"));
      const server = await talkingServer();
      try {
        await using service = new ServiceClient({ ...server.backend });
        const sampler = await service.createSamplingClient({ baseModel: "tinkerts/nano" });
        server.engine.answers = ["2", "no idea", "5", "stop"];
        await evaluate({
          sampler,
          tasks: [1, 2, 3, 4].map((a) => ({ prompt: `What is ${a} + ${a}?`, answer: 2 * a })),
          grade: (attempt) => {
            if (attempt.text === "stop") throw new Error("it stopped");
            return numberMatch()(attempt);
          },
          concurrency: 1,
          folder,
          name: "sums",
        });
        const read = await judge.ask<Record<string, unknown>>("read", { folder, name: "sums" });
        expect(read).toMatchObject({
          result: {
            name: "sums",
            score: 0.25,
            num_examples: 4,
            num_correct: 1,
            num_errors: 1,
            pass_at_k: {},
          },
          wrong: 2,
          errors: 1,
          summary: { sums: { score: 0.25, num_examples: 4, num_correct: 1 } },
        });
        expect((read["trajectories"] as object[])[0]).toMatchObject({
          idx: 0,
          benchmark: "sums",
          turns: [{ role: "user" }, { role: "assistant", content: "2" }],
          reward: 1,
          logs: { expected: "2", extracted: "2" },
          error: null,
        });
      } finally {
        await server.backend.close();
        rmSync(folder, { recursive: true });
      }
    });
  },
);

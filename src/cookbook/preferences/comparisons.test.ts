import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readRow } from "../data/read-row.js";
import { swapComparison } from "./comparison.js";
import { comparisonShape, comparisons } from "./comparisons.js";

const user = (content: string) => ({ role: "user", content });
const assistant = (content: string) => ({ role: "assistant", content });
const read = (row: unknown) => readRow(row, comparisonShape).row;
const problems = (row: unknown) =>
  readRow(row, comparisonShape).problems?.map(({ field, message }) => [field, message]);

const SUMS = {
  prompt: [user("1+1=")],
  completionA: [assistant("2")],
  completionB: [assistant("3")],
  label: "A",
};

describe("a row of two answers", () => {
  it.each([
    ["texts", { prompt: "1+1=", chosen: "2", rejected: "3" }],
    ["messages", { prompt: [user("1+1=")], chosen: [assistant("2")], rejected: [assistant("3")] }],
    ["a conversation and texts", { messages: [user("1+1=")], chosen: "2", rejected: "3" }],
    [
      "whole conversations",
      { chosen: [user("1+1="), assistant("2")], rejected: [user("1+1="), assistant("3")] },
    ],
    [
      "whole conversations and their prompt, as in UltraFeedback",
      {
        prompt: "1+1=",
        chosen: [user("1+1="), assistant("2")],
        rejected: [user("1+1="), assistant("3")],
        score_chosen: 8,
      },
    ],
    [
      "transcripts, as in hh-rlhf",
      { chosen: "\n\nHuman: 1+1=\n\nAssistant: 2", rejected: "\n\nHuman: 1+1=\n\nAssistant: 3" },
    ],
    ["a label", { prompt: "1+1=", completion_a: "2", completion_b: "3", label: "a" }],
    ["our own fields", SUMS],
    [
      "the Python cookbook's files",
      {
        comparison: {
          prompt_conversation: [user("1+1=")],
          completion_A: [assistant("2")],
          completion_B: [assistant("3")],
        },
        label: "A",
      },
    ],
  ])("may be %s", (_, row) => {
    expect(read(row)).toEqual(SUMS);
  });

  it("keeps what a label says, ties too", () => {
    const row = { prompt: "1+1=", completion_a: "two", completion_b: "2" };
    expect(read({ ...row, label: "B" })?.label).toBe("B");
    expect(read({ ...row, label: "tie" })?.label).toBe("Tie");
    expect(problems({ ...row, label: "C" })).toEqual([["label", 'label must be A, B or Tie, got "C"']]);
    expect(problems(row)).toEqual([["label", "label must be A, B or Tie, got undefined"]]);
  });

  it("takes all that both conversations share for the prompt, and the tools", () => {
    const shared = [user("Hi"), assistant("Hello"), user("Bye")];
    const row = {
      chosen: [...shared, assistant("See you")],
      rejected: [...shared, assistant("No")],
      tools: [{ name: "wave", parameters: {} }],
    };
    expect(read(row)).toMatchObject({
      prompt: shared,
      completionA: [assistant("See you")],
      completionB: [assistant("No")],
      tools: [{ name: "wave" }],
    });
    const same = [...shared, assistant("Same")];
    expect(read({ chosen: same, rejected: same })).toMatchObject({
      prompt: shared,
      completionA: [assistant("Same")],
      completionB: [assistant("Same")],
    });
  });

  it.each([
    [
      { text: "a", id: 1 },
      "chosen",
      "chosen and rejected are missing, and so are completion_a and completion_b: the row has text, id",
    ],
    [{ prompt: "Q", chosen: "a" }, "rejected", "rejected is missing"],
    [
      { chosen: "a", rejected: "b" },
      "prompt",
      "prompt is missing, and chosen and rejected are answers alone: the row has chosen, rejected",
    ],
    [{ prompt: "Q", chosen: 3, rejected: "b" }, "chosen", "chosen must be text or a list of messages, got 3"],
    [
      { prompt: "Q", chosen: [{ role: "assistant" }], rejected: "b" },
      "chosen[0].content",
      "chosen[0].content is missing",
    ],
    [
      { chosen: [user("Q"), assistant("a")], rejected: [assistant("b")] },
      "rejected",
      "rejected is an answer alone, and chosen a whole conversation",
    ],
    [
      { chosen: [user("Q"), assistant("a")], rejected: [user("other"), assistant("b")] },
      "chosen[0]",
      "chosen[0] must be an answer, since chosen and rejected are the same only before it",
    ],
    [
      { prompt: "P", chosen: [user("Q"), assistant("a")], rejected: [user("Q"), assistant("b")] },
      "prompt",
      "prompt must be what chosen and rejected begin with",
    ],
    [
      { prompt: [user("Q"), assistant("a")], chosen: "a", rejected: "b" },
      "prompt",
      "prompt must end with what is answered, not with an assistant's message",
    ],
    [
      { prompt: "Q", completion_a: [assistant("a"), user("b")], completion_b: "c", label: "A" },
      "",
      "the first answer must begin and end with a message of the assistant",
    ],
    [{ comparison: "x", label: "A" }, "comparison", 'comparison must be an object, got "x"'],
  ])("is refused with its field: %j", (row, field, message) => {
    expect(problems(row)?.[0]).toEqual([field, message]);
  });

  it("is read from files, and named when it is wrong", async () => {
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-comparisons-"));
    try {
      const file = join(folder, "pairs.jsonl");
      const row = { prompt: "1+1=", chosen: "2", rejected: "3" };
      await writeFile(file, `${JSON.stringify(row)}\n${JSON.stringify({ ...row, rejected: null })}\n`);
      await using rows = await comparisons(file).open();
      expect(await rows.read([0])).toEqual([SUMS]);
      await expect(rows.read([1])).rejects.toThrow("pairs.jsonl line 2: rejected is missing");
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it("can be turned round", () => {
    const turned = swapComparison(read(SUMS)!);
    expect(turned).toEqual({
      ...SUMS,
      completionA: SUMS.completionB,
      completionB: SUMS.completionA,
      label: "B",
    });
    expect(swapComparison({ ...turned, label: "Tie" }).label).toBe("Tie");
  });
});

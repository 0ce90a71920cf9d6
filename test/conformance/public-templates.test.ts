import { describe, expect, it } from "vitest";
import { TinkerError } from "../../src/errors.js";
import type { RenderChat } from "../../src/tokenizers/chat-template.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import {
  CONVERSATIONS,
  ENDS,
  NOW,
  type PublicTemplate,
  RAW_CONVERSATIONS,
  type RawConversation,
  rendererOf,
  trainOn,
  writerOf,
} from "./public-templates.js";
import { writeReport } from "./report.js";

/** Conversations that a template must train to count as working. */
const NEEDED = ["plain", "turns"];
const MIN_WORKING = 190;

explainSkip("public-templates.test.ts");
const hasJinja = hasPythonModule("transformers", "public-templates.test.ts");

interface Found {
  readonly packages: Readonly<Record<string, string>>;
  readonly templates: readonly PublicTemplate[];
}
type Written = { readonly text: string } | { readonly refused: string };

describe.skipIf(!hasJinja)("public chat templates", () => {
  it("are written as Python writes them, and train what they should", { timeout: 600_000 }, async () => {
    await using judge = new Judge("public_templates.py");
    const { packages, templates } = await judge.ask<Found>("templates");
    const differences: string[] = [];
    const wrong: string[] = [];
    const refused = new Map<string, string[]>();
    let working = 0;
    let judged = 0;
    for (const template of templates) {
      const { name, source } = template;
      const write = await writerOf(template);
      const theirs = await judge.ask<readonly Written[]>("render", {
        source,
        conversations: RAW_CONVERSATIONS,
        bos: ENDS.bosToken,
        eos: ENDS.eosToken,
      });
      for (const [index, conversation] of RAW_CONVERSATIONS.entries()) {
        const [ours, expected] = [written(write, conversation), theirs[index]!];
        if ("text" in ours ? "text" in expected && ours.text === expected.text : "refused" in expected)
          continue;
        differences.push(`${name} ${index}: ${JSON.stringify(ours)} and not ${JSON.stringify(expected)}`);
      }
      const outcomes = await trainedOn(template);
      if (typeof outcomes === "string") {
        refused.set(outcomes, [...(refused.get(outcomes) ?? []), name]);
        continue;
      }
      judged += outcomes.size;
      for (const [kind, outcome] of outcomes)
        if ("wrong" in outcome) wrong.push(`${name} ${kind}: ${outcome.wrong}`);
      const reason = NEEDED.map((kind) => outcomes.get(kind)!).find((outcome) => "refused" in outcome);
      if (reason === undefined) working += 1;
      else if ("refused" in reason)
        refused.set(reason.refused, [...(refused.get(reason.refused) ?? []), name]);
    }
    expect(differences).toEqual([]);
    expect(wrong).toEqual([]);
    expect(working).toBeGreaterThanOrEqual(MIN_WORKING);
    writeReport("templates", {
      packages,
      total: templates.length,
      rendered: templates.length * RAW_CONVERSATIONS.length,
      differences: differences.length,
      working,
      judged,
      refused: [...refused].map(([reason, names]) => [names.join(", "), reason]),
    });
  });
});

function written(write: RenderChat, conversation: RawConversation): Written {
  const { messages, add_generation_prompt: addGenerationPrompt, tools, ...variables } = conversation;
  try {
    return { text: write(messages, { addGenerationPrompt, tools, variables, now: () => NOW }) };
  } catch (error) {
    if (error instanceof TinkerError) return { refused: error.message };
    throw error;
  }
}

/** What became of each kind of conversation, or why there is no renderer. */
async function trainedOn(
  template: PublicTemplate,
): Promise<string | Map<string, ReturnType<typeof trainOn>>> {
  try {
    const renderer = await rendererOf(template);
    return new Map(Object.keys(CONVERSATIONS).map((kind) => [kind, trainOn(renderer, kind)]));
  } catch (error) {
    if (error instanceof TinkerError) return error.message;
    throw error;
  }
}

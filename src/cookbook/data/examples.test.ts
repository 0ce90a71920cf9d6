import { describe, expect, it } from "vitest";
import { getRenderer, type Message, type ToolDeclaration } from "../../renderers/index.js";
import { RoleColonRenderer } from "../../renderers/role-colon.js";
import { ModelInput, type ModelInputChunkLike } from "../../wire/index.js";
import { datumFromExample, toExamples } from "./examples.js";
import { readLine } from "./read-row.js";
import { conversationShape } from "./row-formats.js";

/** One token a character. */
const tokenizer = {
  encode: (text: string) => Array.from(text, (character) => character.codePointAt(0)!),
  decode: (tokens: ArrayLike<number>) => String.fromCodePoint(...Array.from(tokens)),
};

/** Declares tools in a system message, as most formats do. */
class DeclaringRenderer extends RoleColonRenderer {
  override declareTools(tools: readonly ToolDeclaration[], systemPrompt = ""): readonly Message[] {
    return [{ role: "system", content: `${systemPrompt}(${tools.map(({ name }) => name).join()})` }];
  }
}

const image = (expectedTokens: number): ModelInputChunkLike => ({
  type: "image",
  data: new Uint8Array([0x89]),
  format: "png",
  expectedTokens,
});
const text = (...tokens: number[]): ModelInputChunkLike => ({ type: "encoded_text", tokens });
const example = (chunks: readonly ModelInputChunkLike[], ...weights: number[]) => ({
  input: ModelInput.from(chunks),
  weights: Float32Array.from(weights),
});

function facts(datum: ReturnType<typeof datumFromExample>) {
  return (
    datum && {
      input: datum.modelInput.chunks.map((chunk) =>
        chunk.type === "encoded_text" ? [...chunk.tokens] : chunk.type,
      ),
      targets: datum.lossFnInputs["targetTokens"]!.toArray(),
      weights: datum.lossFnInputs["weights"]!.toArray(),
    }
  );
}

describe("a datum", () => {
  it("has at each position the next token and its weight", () => {
    expect(facts(datumFromExample(example([text(1, 2, 3, 4)], 0, 0, 1, 1)))).toEqual({
      input: [[1, 2, 3]],
      targets: [2, 3, 4],
      weights: [0, 1, 1],
    });
  });

  it("is cut from the right, in texts and between images", () => {
    const given = example([text(1, 2), image(3), text(4, 5, 6), image(2), text(7)], ...new Array(11).fill(1));
    const cut = (maxLength?: number) => facts(datumFromExample(given, { maxLength }));
    expect(cut()?.input).toEqual([[1, 2], "image", [4, 5, 6], "image"]);
    expect(cut()?.targets).toEqual([2, 0, 0, 0, 4, 5, 6, 0, 0, 7]);
    // An image at the end has no text after it to train on.
    for (const maxLength of [8, 9, 10]) expect(cut(maxLength)?.targets).toEqual([2, 0, 0, 0, 4, 5, 6]);
    expect(cut(7)?.targets).toEqual([2, 0, 0, 0, 4, 5]);
    for (const maxLength of [2, 3, 4, 5])
      expect(cut(maxLength)).toEqual({ input: [[1]], targets: [2], weights: [1] });
  });

  it("leaves out empty chunks", () => {
    expect(facts(datumFromExample(example([text(), text(1, 2), text()], 1, 1)))).toEqual({
      input: [[1]],
      targets: [2],
      weights: [1],
    });
  });

  it("weighs one in all by reduction mean, of the tokens that are left, in float32", () => {
    const given = example([text(1, 2, 3, 4, 5)], 1, 1, 0, 1, 1);
    const third = Math.fround(1 / 3);
    expect(facts(datumFromExample(given, { reduction: "mean" }))?.weights).toEqual([third, 0, third, third]);
    expect(facts(datumFromExample(given, { reduction: "mean", maxLength: 4 }))?.weights).toEqual([
      0.5, 0, 0.5,
    ]);
  });

  it("is undefined without trained tokens", () => {
    expect(datumFromExample(example([text(1, 2, 3)], 0, 0, 0))).toBeUndefined();
    expect(datumFromExample(example([text(1, 2, 3)], 1, 0, 0))).toBeUndefined();
    expect(datumFromExample(example([text(1, 2, 3)], 0, 0, 1), { maxLength: 2 })).toBeUndefined();
    expect(datumFromExample(example([text(1)], 1))).toBeUndefined();
    expect(datumFromExample(example([image(4), text()], 1, 1, 1, 1))).toBeUndefined();
  });

  it("refuses options that mean nothing", () => {
    const given = example([text(1, 2)], 1, 1);
    expect(() => datumFromExample(given, { maxLength: 1 })).toThrow(
      "maxLength must be an integer of 2 or more, got 1",
    );
    expect(() => datumFromExample(given, { reduction: "sum" as "mean" })).toThrow(
      'reduction must be "none" or "mean", got "sum"',
    );
  });
});

describe("the examples of a conversation", () => {
  const tools = [{ name: "add", description: "", parameters: {} }];
  const messages = [
    { role: "user", content: "Q" },
    { role: "assistant", content: "A" },
  ];
  const shown = (
    conversation: Parameters<typeof toExamples>[0],
    trainOn?: Parameters<typeof toExamples>[2],
  ) =>
    toExamples(conversation, new DeclaringRenderer(tokenizer), trainOn).map(({ input, weights }) =>
      input
        .toInts()
        .map((token, index) => (weights[index] === 0 ? "" : "_") + String.fromCodePoint(token))
        .join(""),
    );

  it("are those of the renderer", () => {
    const renderer = getRenderer("role_colon", tokenizer);
    expect(toExamples({ messages }, renderer)).toEqual(renderer.buildSupervisedExamples(messages));
    expect(toExamples({ messages }, renderer, "all_tokens")).toEqual(
      renderer.buildSupervisedExamples(messages, "all_tokens"),
    );
  });

  it("declare the tools, in the place of the system message", () => {
    expect(shown({ messages, tools })[0]).toMatch(/^System: \(add\)\n\nUser: Q/);
    const system = { role: "system", content: "Be brief." };
    expect(shown({ messages: [system, ...messages], tools })[0]).toMatch(
      /^System: Be brief\.\(add\)\n\nUser: Q/,
    );
    expect(() => toExamples({ messages, tools }, getRenderer("role_colon", tokenizer))).toThrow(
      "has no tools",
    );
  });

  it.each(["qwen3", "qwen3_5", "qwen3_8_medium_reasoning", "nemotron3"])(
    "of %s declare the tools of a file like those of code",
    (name) => {
      const parameters = {
        type: "object",
        properties: { a: { type: "integer", enum: [1, 2], minimum: 0 } },
        required: ["a"],
      };
      const row = { messages, tools: [{ name: "add", description: "Adds.", parameters }] };
      const fromFile = readLine(new TextEncoder().encode(JSON.stringify(row)), conversationShape()).row!
        .tools!;
      const renderer = getRenderer(name, tokenizer);
      expect(renderer.declareTools(fromFile)).toEqual(renderer.declareTools(row.tools));
      expect(String(renderer.declareTools(fromFile)[0]!.content)).toContain("minimum");
    },
  );

  it("learn declared tools only where their system message is trainable", () => {
    const [user, assistant] = messages.map((message) => ({ ...message, trainable: true }));
    expect(shown({ messages: [user!, assistant!], tools }, "customized")[0]).toMatch(
      /^System: \(add\)\n\nUser:_ _Q/,
    );
    const system = { role: "system", content: "S", trainable: true };
    expect(shown({ messages: [system, user!, assistant!], tools }, "customized")[0]).toMatch(
      /^System:_ _S_\(/,
    );
  });
});

describe("messages of a row", () => {
  const messages: Message[] = [
    { role: "user", content: "a" },
    { role: "assistant", content: "bad", weight: 0 },
    { role: "user", content: "b" },
    { role: "assistant", content: "good", weight: 1 },
  ];
  const learnt = (examples: ReturnType<typeof toExamples>) =>
    examples.map(({ input, weights }) =>
      tokenizer.decode(input.toInts().filter((_, place) => weights[place]! > 0)),
    );

  it("are not trained on with a weight of 0, in one sequence or in an example for each answer", () => {
    class SplitRenderer extends RoleColonRenderer {
      override get hasExtensionProperty(): boolean {
        return false;
      }
    }
    for (const renderer of [new RoleColonRenderer(tokenizer), new SplitRenderer(tokenizer)])
      expect(learnt(toExamples({ messages }, renderer, "all_assistant_messages"))).toEqual([
        " good\n\nUser:",
      ]);
    const whole = toExamples({ messages }, new RoleColonRenderer(tokenizer), "all_messages");
    expect(learnt(whole).join()).not.toContain("bad");
  });

  it("have a role that the format has", () => {
    const as = (role: string, renderer = new RoleColonRenderer(tokenizer)) =>
      toExamples({ messages: [messages[0]!, { role, content: "x" }, messages[3]!] }, renderer);
    const refusal =
      'messages[1].role is "asistant", which the model\'s format does not have: did you mean assistant?';
    expect(() => as("asistant")).toThrow(refusal);
    for (const [role, meant] of Object.entries({ Bot: "assistant", human: "user", developer: "system" }))
      expect(() => as(role)).toThrow(`did you mean ${meant}?`);
    for (const role of ["narrator", "constructor"])
      expect(() => as(role)).toThrow("expected one of system, user, assistant, tool");
    class StoryRenderer extends RoleColonRenderer {
      override get roles(): readonly string[] {
        return [...super.roles, "narrator"];
      }
    }
    expect(as("narrator", new StoryRenderer(tokenizer))).toHaveLength(1);
  });
});

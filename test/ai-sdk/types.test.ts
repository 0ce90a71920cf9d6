import type { createProviderRegistry as registry6, wrapLanguageModel as wrap6 } from "ai";
import type { createProviderRegistry as registry7, wrapLanguageModel as wrap7 } from "ai7";
import { describe, expectTypeOf, it } from "vitest";
import type { CallOptions, TinkertsModel, TinkertsProvider } from "../../src/ai-sdk/index.js";

/** The specification's own model, as each major of the AI SDK has it from its major of @ai-sdk/provider. */
type ModelOf<Wrap extends (options: never) => unknown> = Extract<
  Parameters<Wrap>[0] extends { model: infer Model } ? Model : never,
  { specificationVersion: "v3" }
>;
type Model6 = ModelOf<typeof wrap6>;
type Model7 = ModelOf<typeof wrap7>;

describe("the types of specification v3", () => {
  it("are those of both majors of the AI SDK", () => {
    expectTypeOf<Model6["specificationVersion"]>().toEqualTypeOf<"v3">();
    expectTypeOf<Model7["specificationVersion"]>().toEqualTypeOf<"v3">();
    expectTypeOf<TinkertsModel>().toExtend<Model6>();
    expectTypeOf<TinkertsModel>().toExtend<Model7>();
    // Methods are compared both ways: what is passed in must fit too.
    expectTypeOf<Parameters<Model6["doGenerate"]>[0]>().toExtend<CallOptions>();
    expectTypeOf<Parameters<Model7["doGenerate"]>[0]>().toExtend<CallOptions>();
  });

  it("make a provider of both", () => {
    expectTypeOf<{ tinkerts: TinkertsProvider }>().toExtend<Parameters<typeof registry6>[0]>();
    expectTypeOf<{ tinkerts: TinkertsProvider }>().toExtend<Parameters<typeof registry7>[0]>();
  });
});

import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import shared from "./vitest.config.js";

/** The fuzz takes longest: begun last, it would be alone in the end. */
class FuzzFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isFuzz = ({ moduleId }: TestSpecification) => Number(moduleId.endsWith("fuzz.test.ts"));
    return (await super.sort(files)).sort((a, b) => isFuzz(b) - isFuzz(a));
  }
}

const { test, ...rest } = shared({ command: "serve", mode: "test" });
const { projects: _, ...settings } = test!;

/** Tests that need a GPU, or SwiftShader in place of one; `npm run test:gpu` installs what is missing. */
export default defineConfig({
  ...rest,
  test: {
    ...settings,
    include: ["test/gpu/**/*.test.ts"],
    sequence: { sequencer: FuzzFirst },
  },
});

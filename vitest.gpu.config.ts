import { defineConfig } from "vitest/config";
import shared from "./vitest.config.js";

/** Tests that need a GPU, or SwiftShader in place of one; `npm run test:gpu` installs what is missing. */
export default defineConfig({
  ...shared,
  test: { ...shared.test, include: ["test/gpu/**/*.test.ts"], exclude: [], testTimeout: 120_000 },
});

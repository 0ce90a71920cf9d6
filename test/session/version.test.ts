import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { PROTOCOL_VERSION, SDK_VERSION } from "../../src/version.js";

it("the version in the sources is the version of the package", () => {
  const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  expect(SDK_VERSION).toBe(manifest.version);
  expect(PROTOCOL_VERSION).toBe("0.36.0");
});

import { describe, expect, it } from "vitest";
import { defaultModel } from "../../src/local/default-model.js";
import { startLocalBackend } from "../../src/local/index.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, lastLine, runPython } from "./judge.js";
import { writeReport } from "./report.js";

explainSkip("old-clients.test.ts");

/** Name and Python of each version, the newest among them; set by `npm run conformance`. */
const clients = Object.entries(JSON.parse(process.env["TINKERTS_CLIENTS"] ?? "{}") as Record<string, string>);

interface Workflow {
  readonly version: string;
  readonly parts: readonly (readonly [part: string, result: string])[];
}

/** Neither is a failure: the version has no such method, or PyTorch is not installed. */
const ANSWERS = ["ok", "not in this version", "needs PyTorch"];

describe.skipIf(clients.length === 0)("the official Python SDK, whole workflow", () => {
  it.each(clients)("works with version %s", async (name, interpreter) => {
    await using backend = await startLocalBackend({ logger: silent });
    const { baseURL, apiKey } = backend;
    const settings = { baseURL, apiKey, model: defaultModel.name, interpreter };
    const found = lastLine<Workflow>(await runPython("workflow.py", settings));
    writeReport(`workflow-${name}`, { name, ...found });
    if (name !== "newest") expect(found.version).toMatch(new RegExp(`^${name.replace(".", "\\.")}\\.`));
    expect(found.parts.filter(([, result]) => !ANSWERS.includes(result))).toEqual([]);
    expect(found.parts.filter(([, result]) => result === "ok").length).toBeGreaterThan(10);
  });
});

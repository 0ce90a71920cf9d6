/** What the judges of formats wrote when they were last looked at, so that one that comes to write something else is noticed. */
import { createHash, type Hash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Conversation } from "./conversations.js";
import type { FormatJudge } from "./format-differences.js";
import type { FormatOutcome } from "./format-operations.js";

/** Written by `npm run conformance -- --report`. */
const RECORDED = fileURLToPath(new URL("format-digests.json", import.meta.url));

/** Whether this run writes what it finds. */
export const isRecording = process.env["TINKERTS_REPORTING"] === "yes";

/** By renderer and judge: what was asked and what was written, each as a short hash. */
type Digests = Record<string, Record<string, { readonly asked: string; readonly written: string }>>;

/** Hashes of what each judge was asked and wrote, for the first conversations of each renderer. */
export class FormatDigests {
  readonly #hashes = new Map<string, Map<FormatJudge, readonly [asked: Hash, written: Hash]>>();
  #current = new Map<FormatJudge, readonly [asked: Hash, written: Hash]>();

  /** Begins with a renderer; false if it was begun before. */
  begin(renderer: string): boolean {
    if (this.#hashes.has(renderer)) return false;
    this.#current = new Map();
    this.#hashes.set(renderer, this.#current);
    return true;
  }

  /** A refusal counts as one, whatever its words. What a judge reads is what we wrote, and is left out. */
  add(judge: FormatJudge, conversation: Conversation, { ok, error }: FormatOutcome): void {
    if (judge.endsWith("answer")) return;
    const hashes = this.#current.get(judge) ?? [createHash("sha256"), createHash("sha256")];
    this.#current.set(judge, hashes);
    hashes[0].update(JSON.stringify(conversation));
    hashes[1].update(error === undefined ? JSON.stringify(ok).normalize("NFC") : "refused");
  }

  get found(): Digests {
    const short = (hash: Hash) => hash.copy().digest("hex").slice(0, 16);
    return Object.fromEntries(
      [...this.#hashes].map(([renderer, judges]) => [
        renderer,
        Object.fromEntries(
          [...judges].map(([judge, [asked, written]]) => [
            judge,
            { asked: short(asked), written: short(written) },
          ]),
        ),
      ]),
    );
  }

  /** Where a judge writes something else than when it was last looked at, or was never looked at. */
  changed(): readonly string[] {
    const recorded: Digests = existsSync(RECORDED) ? JSON.parse(readFileSync(RECORDED, "utf8")) : {};
    return Object.entries(this.found).flatMap(([renderer, judges]) =>
      Object.entries(judges).flatMap(([judge, { asked, written }]) => {
        const before = recorded[renderer]?.[judge];
        if (before?.asked === asked && before.written === written) return [];
        if (before === undefined) return [`${renderer}, ${judge}: not recorded`];
        return [`${renderer}, ${judge}: ${before.asked === asked ? "writes" : "was asked"} something else`];
      }),
    );
  }
}

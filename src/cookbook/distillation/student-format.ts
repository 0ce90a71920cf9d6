import type { ServiceClient } from "../../clients/index.js";
import { getRenderer, type Message, type Renderer, rendererNames } from "../../renderers/index.js";
import { isTinkerPath, wrongField } from "../../wire/index.js";
import type { OpenTeacher } from "./teacher.js";

/** The chat format that a student reads and writes. */
export interface StudentFormat {
  readonly renderer: Renderer;
  readonly rendererName: string;
  /** A custom renderer, whose models no table lists. */
  readonly isOwn: boolean;
}

/** Text in many scripts, so that two vocabularies always tokenize it differently. */
const PROBE_TEXT =
  "Ten cats, 3.14159 × 27 = 84.8229! naïve Straße; Ελληνικά, русский, 日本語, 한국어, العربية 🙂\n\tif (x >= 10) { return null; }";

const PROBE_CONVERSATION: readonly Message[] = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "What is 2 + 2?" },
  { role: "assistant", content: "4" },
  { role: "user", content: "And 3 + 3?" },
];

/**
 * Refuses a teacher that does not use the student's tokens or chat format. It would answer all the same, with
 * meaningless scores. A custom renderer's format is accepted unchecked.
 */
export async function checkFormats(
  service: ServiceClient,
  teacher: OpenTeacher,
  student: StudentFormat,
  { field, signal }: { readonly field: string; readonly signal: AbortSignal | undefined },
): Promise<void> {
  const { renderer, rendererName, isOwn } = student;
  const encode = (tokenizer: Renderer["tokenizer"]) =>
    tokenizer.encode(PROBE_TEXT, { addSpecialTokens: false });
  if (!isSame(encode(renderer.tokenizer), encode(teacher.tokenizer))) {
    throw wrongField(
      field,
      `must have the student's tokenizer, and that of ${teacher.name} (${teacher.baseModel}) cuts text into ` +
        "other tokens. Use trainPromptDistillation, which passes on text instead of tokens.",
    );
  }
  if (isOwn) return;
  const known = await formatsOf(service, teacher, signal);
  if (known.length === 0 || known.includes(rendererName)) return;
  const written = writingOf(renderer);
  if (known.some((name) => isSame(written, writingOf(getRenderer(name, teacher.tokenizer))))) return;
  throw wrongField(
    field,
    `must read the student's chat format, ${rendererName}, and ${teacher.name} was trained with ` +
      `${known.join(" or ")}. Give renderer: "${known[0]}", or another teacher.`,
  );
}

/** The formats that a teacher was trained with: as its run says, or all that are known for its base model. */
async function formatsOf(
  service: ServiceClient,
  { name, baseModel, tokenizer }: OpenTeacher,
  signal: AbortSignal | undefined,
): Promise<readonly string[]> {
  const ofRun = isTinkerPath(name) ? await formatOfRun(service, name, signal) : undefined;
  if (ofRun !== undefined) return [ofRun];
  const known = rendererNames(baseModel);
  return known.length === 0 && tokenizer.hasChatTemplate ? ["template"] : known;
}

async function formatOfRun(service: ServiceClient, path: string, signal: AbortSignal | undefined) {
  // Another account's run may be usable without being readable.
  const run = await service
    .createRestClient()
    .getTrainingRun(path, { signal })
    .catch(() => undefined);
  const name = run?.userMetadata?.["renderer_name"];
  return name !== undefined && rendererNames().includes(name) ? name : undefined;
}

function writingOf(renderer: Renderer): readonly number[] {
  return renderer.buildPrompt(PROBE_CONVERSATION).toInts();
}

function isSame(left: readonly number[], right: readonly number[]): boolean {
  return left.length === right.length && left.every((token, position) => token === right[position]);
}

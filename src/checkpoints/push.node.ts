import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { APIUserAbortError, TinkerError, ValidationError } from "../errors.js";
import { networkReason, platform, type RequestOptions, throwIfAborted } from "../transport/index.js";
import {
  abortSignal,
  anyText,
  boolean,
  eitherOf,
  type FieldsOf,
  functionOf,
  list,
  optional,
  optionTable,
  parseTinkerPath,
  type TinkerPath,
  text,
  type WeightsInfo,
  withDefault,
} from "../wire/index.js";
import { type CheckpointUrls, type DownloadOptions, downloadCheckpoint } from "./download.node.js";
import { matchesAny } from "./file-patterns.js";
import { modelCard, pathInCard } from "./model-card.js";
import { ADAPTER_CONFIG, ADAPTER_WEIGHTS, nameBaseModel } from "./peft.node.js";

/** Server calls that a push needs; a `RestClient` fits. */
export interface CheckpointSource extends CheckpointUrls {
  getWeightsInfo(path: string, options?: RequestOptions): Promise<WeightsInfo>;
}

/** Options of `pushToHub`: repository, branch, files and model card. */
export interface PushOptions {
  /** Repository on the Hub: `owner/name`, or a name under the token's own account. Default: made from base model and run. */
  repo?: string | undefined;
  /** Makes the repository private. Default true. An existing public repository is only pushed to with `false`. */
  private?: boolean | undefined;
  /** Branch, made if missing. Default: the main one; with no `repo`, one named for the checkpoint. */
  revision?: string | undefined;
  commitMessage?: string | undefined;
  /** Open a pull request instead of pushing. */
  createPr?: boolean | undefined;
  /** Push only files that match one of these shell patterns. */
  allowPatterns?: readonly string[] | undefined;
  /** Push no files that match one of these. */
  ignorePatterns?: readonly string[] | undefined;
  /** A README.md of your own; false for none. By default one is written unless the checkpoint has it. */
  modelCard?: boolean | string | undefined;
  /** Access token of the Hub. Default: HF_TOKEN, else the one that `hf auth login` stored. */
  token?: string | undefined;
  /** URL of the Hub. Default: HF_ENDPOINT, else https://huggingface.co. */
  hubUrl?: string | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: DownloadOptions["onProgress"];
  fileByFile?: DownloadOptions["fileByFile"];
}

const PUSH_OPTIONS = optionTable({
  repo: optional(anyText),
  private: withDefault(boolean, true),
  revision: optional(text),
  commitMessage: optional(text),
  createPr: withDefault(boolean, false),
  allowPatterns: optional(list(text)),
  ignorePatterns: withDefault(list(text), []),
  modelCard: withDefault(
    eitherOf<boolean, string>((given) => typeof given === "boolean", boolean, anyText),
    true,
  ),
  token: optional(text),
  hubUrl: optional(text),
  signal: optional(abortSignal),
  onProgress: optional(functionOf<NonNullable<PushOptions["onProgress"]>>()),
  fileByFile: withDefault(boolean, false),
} satisfies FieldsOf<PushOptions>);

type FilledPushOptions = ReturnType<(typeof PUSH_OPTIONS)["check"]>;

/** Location of a pushed checkpoint on the Hub. */
export interface PushedCheckpoint {
  /** Repository on the Hub, as `owner/name`. */
  readonly repo: string;
  readonly revision: string;
  /** URL of the checkpoint's page. */
  readonly url: string;
  readonly commit: string | undefined;
  readonly pullRequestUrl: string | undefined;
}

const DEFAULT_HUB = "https://huggingface.co";
const MAIN = "main";
/** Files that loading the adapter does not need. */
const IGNORED_BY_DEFAULT = ["checkpoint_complete", "optimizer.safetensors"];
const MAX_CARD_BYTES = 1 << 20;

interface Hub {
  readonly library: typeof import("@huggingface/hub");
  readonly access: { readonly accessToken: string; readonly hubUrl: string; readonly fetch: typeof fetch };
}

/** Publishes a checkpoint on the Hugging Face Hub as a PEFT adapter; private by default. */
export async function pushToHub(
  rest: CheckpointSource,
  path: string,
  options: PushOptions = {},
): Promise<PushedCheckpoint> {
  const settings = PUSH_OPTIONS.check(options, "pushToHub");
  try {
    return await push(rest, path, settings);
  } catch (error) {
    throwIfAborted(settings.signal, "The push");
    throw error;
  }
}

async function push(
  rest: CheckpointSource,
  path: string,
  options: FilledPushOptions,
): Promise<PushedCheckpoint> {
  const parsed = parseTinkerPath(path);
  const hub: Hub = {
    library: await import("@huggingface/hub"),
    access: {
      accessToken: await findToken(options.token),
      hubUrl: (options.hubUrl ?? platform.env("HF_ENDPOINT") ?? DEFAULT_HUB).replace(/\/+$/, ""),
      fetch: abortableFetch(options.signal),
    },
  };
  const owner = await ownName(hub);
  const weights = await weightsInfo(rest, path, options.signal);
  const { repo, revision } = destination(parsed, weights, owner, options);
  // Checked before the download, which may take long.
  const isThere = await checkExisting(hub, repo, revision, path, options.private);
  const temporary = await mkdtemp(join(tmpdir(), "tinkerts-push-"));
  try {
    const { folder, files } = await downloadCheckpoint(rest, path, {
      outputDir: temporary,
      resume: false,
      signal: options.signal,
      onProgress: options.onProgress,
      fileByFile: options.fileByFile,
    });
    const prepared = await prepare(folder, files, { path, repo, weights, options });
    throwIfAborted(options.signal, "The push");
    if (!isThere) await createRepository(hub, repo, options.private);
    if (revision !== MAIN) await createRevision(hub, repo, revision);
    const output = await hub.library
      .uploadFiles({
        ...hub.access,
        repo,
        branch: revision,
        files: prepared.map((file) => ({
          path: file,
          content: pathToFileURL(join(folder, ...file.split("/"))),
        })),
        commitTitle: options.commitMessage ?? `Upload ${path}`,
        isPullRequest: options.createPr,
        useXet: false,
        ...(options.signal === undefined ? {} : { abortSignal: options.signal }),
      })
      .catch((error: unknown) => {
        throw hubError(`The files could not be pushed to ${repo}`, error);
      });
    return {
      repo,
      revision,
      url: `${hub.access.hubUrl}/${repo}${revision === MAIN ? "" : `/tree/${encodeURIComponent(revision)}`}`,
      commit: output?.commit.oid,
      pullRequestUrl: output?.pullRequestUrl,
    };
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

/** Most of the Hub's functions take no signal, but all take a fetch function. */
function abortableFetch(signal: AbortSignal | undefined): typeof fetch {
  if (signal === undefined) return fetch;
  return (input, init) => {
    const both = init?.signal == null ? signal : AbortSignal.any([init.signal, signal]);
    return fetch(input, { ...init, signal: both });
  };
}

async function findToken(given: string | undefined): Promise<string> {
  const home = platform.env("HF_HOME") ?? join(homedir(), ".cache", "huggingface");
  const token =
    given ?? platform.env("HF_TOKEN") ?? (await readFile(join(home, "token"), "utf8").catch(() => "")).trim();
  if (token === "") {
    throw new ValidationError(
      "token",
      "A Hugging Face token is needed: pass token, set HF_TOKEN, or run hf auth login.",
    );
  }
  if (!token.startsWith("hf_")) throw new ValidationError("token", 'A Hugging Face token begins with "hf_".');
  return token;
}

async function ownName({ library, access }: Hub): Promise<string> {
  try {
    return (await library.whoAmI(access)).name;
  } catch (error) {
    const isRefused = isStatus(error, library, 401) || isStatus(error, library, 403);
    if (isRefused)
      throw hubError("The Hub does not know this token; make a new one or run hf auth login", error);
    throw hubError(`${access.hubUrl} does not say whose token this is`, error);
  }
}

/** Asks for the base model; a server that cannot answer does not stop the push. */
async function weightsInfo(
  rest: CheckpointSource,
  path: string,
  signal: AbortSignal | undefined,
): Promise<WeightsInfo | undefined> {
  try {
    return await rest.getWeightsInfo(path, signal === undefined ? {} : { signal });
  } catch (error) {
    if (error instanceof APIUserAbortError) throw error;
    return undefined;
  }
}

function destination(
  { trainingRunId, checkpointId }: TinkerPath,
  weights: WeightsInfo | undefined,
  owner: string,
  options: FilledPushOptions,
): { repo: string; revision: string } {
  const base = weights?.baseModel.split("/").at(-1) ?? "adapter";
  const name = options.repo ?? safeName(`tinker-${base}-${trainingRunId}`);
  const repo = name.includes("/") ? name : `${owner}/${name}`;
  if (!/^\w[\w.-]*\/\w[\w.-]*$/.test(repo)) {
    throw new ValidationError("repo", `repo must look like owner/name, got ${JSON.stringify(options.repo)}.`);
  }
  const byDefault = options.repo === undefined ? safeName(checkpointId) : MAIN;
  return { repo, revision: options.revision ?? byDefault };
}

function safeName(text: string): string {
  return text
    .replaceAll(/[^\p{L}\p{N}_.-]/gu, "-")
    .replaceAll(/-{2,}/g, "-")
    .replaceAll(/^[-_. ]+|[-_. ]+$/g, "");
}

/** Whether the repository exists; throws if it must not be pushed to. */
async function checkExisting(
  { library, access }: Hub,
  repo: string,
  revision: string,
  path: string,
  isPrivate: boolean,
): Promise<boolean> {
  let isPublic: boolean;
  try {
    isPublic = !(await library.modelInfo({ ...access, name: repo })).private;
  } catch (error) {
    if (isStatus(error, library, 404)) return false;
    throw hubError(`The Hub does not say whether ${repo} exists`, error);
  }
  if (isPublic && isPrivate) {
    throw new ValidationError(
      "private",
      `${repo} is public; pass private: false to push to it all the same.`,
    );
  }
  let card: string;
  try {
    const file = await library.downloadFile({ ...access, repo, revision, path: "README.md", xet: false });
    card = file === null ? "" : await file.slice(0, MAX_CARD_BYTES).text();
  } catch (error) {
    if (!isStatus(error, library, 404)) throw hubError(`The README.md of ${repo} could not be read`, error);
    card = "";
  }
  const other = pathInCard(card);
  if (other !== undefined && other !== path) {
    throw new ValidationError(
      "repo",
      `${repo} (${revision}) holds another checkpoint: ${other}, not ${path}.`,
    );
  }
  return true;
}

async function createRepository({ library, access }: Hub, repo: string, isPrivate: boolean): Promise<void> {
  await library
    .createRepo({ ...access, repo, visibility: isPrivate ? "private" : "public" })
    .catch((error: unknown) => {
      throw hubError(`${repo} could not be made`, error);
    });
}

async function createRevision({ library, access }: Hub, repo: string, branch: string): Promise<void> {
  await library.createBranch({ ...access, repo, branch }).catch((error: unknown) => {
    if (!isStatus(error, library, 409))
      throw hubError(`The branch ${branch} of ${repo} could not be made`, error);
  });
}

/** Completes the downloaded folder and returns which of its files are pushed. */
async function prepare(
  folder: string,
  downloaded: readonly string[],
  push: { path: string; repo: string; weights: WeightsInfo | undefined; options: FilledPushOptions },
): Promise<string[]> {
  const { weights, options } = push;
  const hasWeights = downloaded.includes(ADAPTER_WEIGHTS) || downloaded.includes("adapter_model.bin");
  if (!downloaded.includes(ADAPTER_CONFIG) || !hasWeights) {
    throw new TinkerError(
      `${push.path} is not a PEFT adapter: it has no ${downloaded.includes(ADAPTER_CONFIG) ? ADAPTER_WEIGHTS : ADAPTER_CONFIG}. Encrypted weights cannot be pushed.`,
    );
  }
  if (weights !== undefined) await nameBaseModel(folder, weights.baseModel);
  const files = new Set(downloaded);
  const { modelCard: card, allowPatterns, ignorePatterns } = options;
  if (card !== false && (typeof card === "string" || !files.has("README.md"))) {
    await writeFile(join(folder, "README.md"), typeof card === "string" ? card : modelCard(push));
    files.add("README.md");
  }
  const ignored = allowPatterns === undefined ? [...ignorePatterns, ...IGNORED_BY_DEFAULT] : ignorePatterns;
  const chosen = [...files].filter(
    (file) => (allowPatterns === undefined || matchesAny(file, allowPatterns)) && !matchesAny(file, ignored),
  );
  if (chosen.length === 0) {
    throw new ValidationError(
      "allowPatterns",
      `None of the files matches the patterns: ${[...files].join(", ")}.`,
    );
  }
  return chosen.sort();
}

function isStatus(error: unknown, library: Hub["library"], status: number): boolean {
  return error instanceof library.HubApiError && error.statusCode === status;
}

function hubError(what: string, error: unknown): TinkerError {
  return new TinkerError(`${what}: ${networkReason(error).text}.`, { cause: error });
}

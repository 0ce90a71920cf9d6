import { TinkerError } from "../errors.js";
import { HOSTED_BASE_URL, platform, untilAborted } from "../transport/index.js";
import { SDK_VERSION } from "../version.js";
import {
  abortSignal,
  anyText,
  boolean,
  type FieldsOf,
  functionOf,
  optional,
  optionTable,
} from "../wire/index.js";
import { compileChatTemplate, findChatTemplates, specialTokensOf } from "./chat-template.js";
import { createTextTokenizer, readSettings, type TokenizerFileName, type TokenizerFiles } from "./files.js";
import { readFolder } from "./folder.js";
import { downloadFromHub } from "./hub.js";
import { hubCacheFolder, readCache, writeCache } from "./hub-cache.js";
import { node, packageFile } from "./node-builtins.js";
import { resolveTokenizerId, type TokenizerModel, type TokenizerReference } from "./resolve-id.js";
import { downloadFromServer, type TokenizerServer } from "./server.js";
import { Tokenizer } from "./tokenizer.js";

/** Where a tokenizer is looked for: the cache, the hub, a revision. */
export interface LoadTokenizerOptions {
  /** Branch, tag or commit on the hub. Default: main. */
  readonly revision?: string | undefined;
  /** Asks no network; takes what is in the cache. Default: HF_HUB_OFFLINE. */
  readonly offline?: boolean | undefined;
  /** The Hugging Face cache. Default: HF_HUB_CACHE, or `hub` in HF_HOME, or ~/.cache/huggingface/hub. */
  readonly cacheFolder?: string | undefined;
  /** Access token of the Hub. Default: HF_TOKEN. */
  readonly token?: string | undefined;
  /** Default: HF_ENDPOINT, or https://huggingface.co. */
  readonly endpoint?: string | undefined;
  readonly fetch?: typeof fetch | undefined;
}

const LOAD_FIELDS = {
  revision: optional(anyText),
  offline: optional(boolean),
  cacheFolder: optional(anyText),
  token: optional(anyText),
  endpoint: optional(anyText),
  fetch: optional(functionOf<typeof fetch>()),
} satisfies FieldsOf<LoadTokenizerOptions>;

/** The options of `loadTokenizer`. */
export const LOAD_TOKENIZER_OPTIONS = optionTable(LOAD_FIELDS);
const SERVER_TOKENIZER_OPTIONS = optionTable({ ...LOAD_FIELDS, signal: optional(abortSignal) });

const HUB_ID = /^(?!.*(?:--|\.\.))[A-Za-z0-9][\w.-]*(?:\/[A-Za-z0-9][\w.-]*)?$/;
const REVISION = /^(?!.*\.\.)[\w][\w./-]*$/;
/** The model that comes with the package, and where its folder is. */
const NANO = { id: "tinkerts/nano", folder: "models/nano" };

/** Kept with the runtime: the package's entries may each carry a copy of this module, and vocabularies are large. */
const LOADED = Symbol.for(`tinkerts.tokenizers.${SDK_VERSION}`);
const scope = globalThis as { [LOADED]?: Map<string, Promise<Tokenizer>> };

function loadedTokenizers(): Map<string, Promise<Tokenizer>> {
  scope[LOADED] ??= new Map();
  return scope[LOADED];
}

/** The tokenizer of a model, as a server describes it. */
export async function tokenizerForModel(
  model: TokenizerModel,
  options: LoadTokenizerOptions = {},
): Promise<Tokenizer> {
  const { id, revision } = resolveTokenizerId(model);
  return await loadTokenizer(id, { ...options, revision: options.revision ?? revision });
}

/**
 * The tokenizer in a folder, in the Hugging Face cache, or on the hub, from which it goes into that cache. Loaded
 * once for a process: everyone who asks for the same one gets the same one.
 */
export async function loadTokenizer(
  idOrFolder: string,
  options: LoadTokenizerOptions = {},
): Promise<Tokenizer> {
  const settings = withDefaults(LOAD_TOKENIZER_OPTIONS.check(options, "loadTokenizer"));
  const key = keyOf(idOrFolder, settings);
  const loaded = loadedTokenizers();
  let tokenizer = loaded.get(key);
  if (tokenizer === undefined) {
    tokenizer = load({ id: idOrFolder, revision: settings.revision }, settings);
    loaded.set(key, tokenizer);
    tokenizer.catch(() => loaded.delete(key));
  }
  return await tokenizer;
}

/**
 * The tokenizer of a model of a server. What is in the package or in the cache is at hand; else the server is asked,
 * which has the model's files where it runs the model itself; else it is looked for as `tokenizerForModel` does.
 */
export async function tokenizerOfServer(
  server: TokenizerServer,
  model: TokenizerModel,
  given: LoadTokenizerOptions & { readonly signal?: AbortSignal | undefined } = {},
): Promise<Tokenizer> {
  const { signal, ...options } = SERVER_TOKENIZER_OPTIONS.check(given, "getTokenizer");
  // A revision is the hub's, and the hosted service gives no files.
  const isAsked = options.revision === undefined && server.baseURL !== HOSTED_BASE_URL;
  if (model.modelName === NANO.id && packageFile(NANO.folder)) return await loadTokenizer(NANO.id);
  if (!isAsked || (await isCached(model, options))) {
    return await untilAborted(tokenizerForModel(model, options), signal);
  }
  const answer = await untilAborted(fromServer(server, model.modelName), signal);
  if (typeof answer !== "string") return answer;
  const found = tokenizerForModel(model, options).catch((error: unknown) => {
    if (!(error instanceof TinkerError)) throw error;
    const asked = `The server at ${server.baseURL} was asked for it first: ${answer}.`;
    throw new TinkerError(`${error.message} ${asked}`, { cause: error });
  });
  return await untilAborted(found, signal);
}

/** A tokenizer, or why the server gives none. */
type FromServer = Promise<Tokenizer | string>;

const byAddress = new Map<string, Map<string, FromServer>>();
const byFetch = new WeakMap<typeof fetch, Map<string, FromServer>>();

function fromServer(server: TokenizerServer, modelName: string): FromServer {
  const models = modelsOf(server);
  const known = models.get(modelName);
  if (known !== undefined) return known;
  const asking = askServer(server, modelName);
  models.set(modelName, asking);
  asking.catch(() => models.delete(modelName));
  return asking;
}

async function askServer(server: TokenizerServer, modelName: string): FromServer {
  const { files, refusal } = await downloadFromServer(server, modelName);
  return files === undefined ? refusal : await fromFiles(modelName, { files, place: server.baseURL });
}

function modelsOf({ server }: TokenizerServer): Map<string, FromServer> {
  const known = typeof server === "string" ? byAddress.get(server) : byFetch.get(server);
  if (known !== undefined) return known;
  const models = new Map<string, FromServer>();
  if (typeof server === "string") byAddress.set(server, models);
  else byFetch.set(server, models);
  return models;
}

/** Whether a tokenizer of the hub is in memory or on disk. */
async function isCached(model: TokenizerModel, options: LoadTokenizerOptions): Promise<boolean> {
  let reference: TokenizerReference;
  try {
    reference = resolveTokenizerId(model);
  } catch {
    // Not public, which the server may not mind.
    return false;
  }
  const { id, revision } = reference;
  const settings = withDefaults({ ...options, revision });
  if (!HUB_ID.test(id) || settings.cacheFolder === undefined) return false;
  if (loadedTokenizers().has(keyOf(id, settings))) return true;
  return isUsable((await readCache(settings.cacheFolder, reference)).files);
}

function keyOf(id: string, { revision, endpoint, cacheFolder, offline }: Settings): string {
  return JSON.stringify([id, revision, endpoint, cacheFolder, offline]);
}

type Settings = ReturnType<typeof withDefaults>;

function withDefaults(options: LoadTokenizerOptions) {
  return {
    revision: options.revision ?? "main",
    offline: options.offline ?? /^(?:1|on|yes|true)$/i.test(platform.env("HF_HUB_OFFLINE") ?? ""),
    cacheFolder: options.cacheFolder ?? hubCacheFolder(),
    token: options.token ?? (platform.env("HF_TOKEN") || undefined),
    endpoint: (options.endpoint ?? (platform.env("HF_ENDPOINT") || "https://huggingface.co")).replace(
      /\/+$/,
      "",
    ),
    fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
  } satisfies { [Name in keyof LoadTokenizerOptions]-?: LoadTokenizerOptions[Name] };
}

async function load(reference: TokenizerReference, settings: Settings): Promise<Tokenizer> {
  return await fromFiles(reference.id, await find(reference, settings));
}

async function fromFiles(name: string, { files, place }: LocatedFiles): Promise<Tokenizer> {
  const tokenizerSettings = readSettings(files, place);
  const templates = findChatTemplates(tokenizerSettings, files["chat_template.jinja"]);
  const specialTokens = specialTokensOf(tokenizerSettings);
  return new Tokenizer({
    name,
    text: createTextTokenizer(files, place),
    renderChat: await compileChatTemplate(templates, tokenizerSettings),
    bosToken: specialTokens["bos_token"],
    eosToken: specialTokens["eos_token"],
    files,
  });
}

interface LocatedFiles {
  readonly files: TokenizerFiles;
  readonly place: string;
}

async function find(reference: TokenizerReference, settings: Settings): Promise<LocatedFiles> {
  const { id, revision } = reference;
  const folder = id === NANO.id ? packageFile(NANO.folder) : id;
  if (folder !== undefined) {
    const files = await readFolder(folder);
    if (isUsable(files)) return { files, place: folder };
    if (node?.fs.existsSync(folder)) {
      throw new TinkerError(`The folder ${folder} has no tokenizer.json and no tiktoken.model.`);
    }
  }
  if (!HUB_ID.test(id)) {
    throw new TinkerError(
      `${JSON.stringify(id)} is neither a folder with a tokenizer.json nor a Hugging Face id such as Qwen/Qwen3-8B.`,
    );
  }
  if (!REVISION.test(revision)) {
    throw new TinkerError(`${JSON.stringify(revision)} is not the name of a revision.`);
  }
  return await findOnHub(reference, settings);
}

async function findOnHub(reference: TokenizerReference, settings: Settings): Promise<LocatedFiles> {
  const { cacheFolder, endpoint, offline } = settings;
  const cached = cacheFolder === undefined ? undefined : await readCache(cacheFolder, reference);
  const usable = cached !== undefined && isUsable(cached.files);
  // Other libraries fetch file by file: a vocabulary may be there without its settings.
  if (usable && (offline || cached.files["tokenizer_config.json"] !== undefined)) {
    return { files: cached.files, place: cached.folder };
  }
  if (offline) {
    throw new TinkerError(
      `The tokenizer of ${reference.id} is needed, but this is offline mode and there is no tokenizer.json and no ` +
        `tiktoken.model in ${cached?.folder ?? "a cache, which this runtime does not have"}. Load it once with ` +
        "HF_HUB_OFFLINE unset, copy the model's folder into the Hugging Face cache, or give a folder that has the file.",
    );
  }
  try {
    const { commit, files } = await downloadFromHub(reference, settings);
    // Without a writable cache the tokenizer is used all the same.
    if (cacheFolder !== undefined) await writeCache(cacheFolder, reference, commit, files).catch(() => {});
    return { files, place: `${reference.id} on ${endpoint}` };
  } catch (error) {
    if (usable) return { files: cached.files, place: cached.folder };
    if (!(error instanceof TinkerError)) throw error;
    const where = cached === undefined ? "" : ` It is not in the cache either (${cached.folder}).`;
    throw new TinkerError(
      `The tokenizer of ${reference.id} could not be loaded. ${error.message}${where} Where there is no network, give ` +
        "a folder with its tokenizer.json, or another hub with HF_ENDPOINT.",
      { cause: error },
    );
  }
}

function isUsable(files: TokenizerFiles): boolean {
  const vocabularies: readonly TokenizerFileName[] = ["tokenizer.json", "tiktoken.model"];
  return vocabularies.some((name) => files[name] !== undefined);
}

import {
  addAnthropicRoutes,
  addOpenAiRoutes,
  anthropicDialect,
  openAiDialect,
  ResponseStore,
} from "../chat-api/index.js";
import { HttpError } from "../http-error.js";
import { createApp } from "../local/server/http/app.js";
import { readJsonObject } from "../local/server/http/body.js";
import { toHttpError } from "../local/server/http/http-error.js";
import { defaultLimits } from "../local/server/http/limits.js";
import { OwnerShares } from "../local/server/http/owner-shares.js";
import type { App, Call } from "../local/server/http/route.js";
import type { Clock } from "../transport/clock.js";
import type { Logger } from "../transport/logger.js";
import { SDK_VERSION } from "../version.js";
import type { Caller, GatewayKeys } from "./access.js";
import { readAddress, SESSION_HEADER } from "./address.js";
import type { AgentSession } from "./agent-session.js";
import type { GatewayModels } from "./models.js";
import { samplingError } from "./sampling-error.js";
import { sessionModels } from "./session-models.js";
import type { SessionRegistry } from "./session-registry.js";
import { addAgentSessionRoutes } from "./session-routes.js";
import { addPassRoutes } from "./upstream/routes.js";
import type { UpstreamService } from "./upstream/service.js";

/** Tokens of an answer if the request sets no limit, so that one answer cannot fill the context. */
const DEFAULT_MAX_TOKENS = 8192;

/** The parts of a gateway. */
export interface GatewayParts {
  readonly clock: Clock;
  readonly logger: Pick<Logger, "error" | "warn">;
  readonly keys: GatewayKeys;
  readonly models: GatewayModels;
  readonly registry: SessionRegistry;
  /** Answers all requests, if set. */
  readonly upstream?: UpstreamService | undefined;
  readonly isClosing: () => boolean;
}

/** The chat APIs over samplers, and the sessions that requests belong to. */
export function createGatewayApp(parts: GatewayParts): App {
  const { clock, logger, keys, models, registry } = parts;
  const callers = new WeakMap<Request, Caller>();
  const reader = { limits: defaultLimits, clock, bodies: new OwnerShares(1, defaultLimits.arrivingBytes) };
  const startedSeconds = Math.floor(clock.wallNow() / 1000);
  const warned = new Set<string>();
  const ignoredBy = new WeakMap<Request, Set<string>>();

  async function identify(call: Call): Promise<Caller> {
    const known = callers.get(call.req.raw);
    if (known !== undefined) return known;
    const caller = await keys.callerOf(call.req.raw.headers, call.env?.address ?? "");
    callers.set(call.req.raw, caller);
    return caller;
  }

  async function authorize(call: Call, session?: string): Promise<void> {
    call.set("identity", { owner: "gateway", seesAll: true });
    const caller = await identify(call);
    if (!caller.isOwner && (session === undefined || caller.session !== session)) throw foreign(caller);
  }

  /** The session that a request names by its address, its header or its key. */
  function namedId(call: Call): string | undefined {
    const { session } = readAddress(new URL(call.req.url).pathname);
    return session ?? call.req.header(SESSION_HEADER) ?? callers.get(call.req.raw)?.session;
  }

  function namedSession(call: Call): AgentSession | undefined {
    const id = namedId(call);
    if (id === undefined) return undefined;
    const caller = callers.get(call.req.raw);
    if (caller?.session !== undefined && caller.session !== id) throw foreign(caller);
    return registry.named(id, readAddress(new URL(call.req.url).pathname).options);
  }

  const app = createApp({
    clock,
    logger,
    keysRequired: keys.keysRequired,
    origins: [],
    pathOf: (path) => readAddress(path).path,
    identify: async (call) => {
      const caller = await identify(call);
      return { owner: caller.session ?? "gateway", seesAll: caller.isOwner };
    },
    isClosing: parts.isClosing,
    dialects: [openAiDialect, anthropicDialect],
    addOpenRoutes(open) {
      open.get("/", (call) => call.json({ server: "tinkerts gateway", version: SDK_VERSION }));
    },
  });
  app.use(async (call, next) => {
    await next();
    if (call.res.status >= 400 && callers.has(call.req.raw)) registry.find(namedId(call) ?? "")?.failed();
  });
  const readBody = (call: Call) => readJsonObject(call, reader);
  const readJson = async (call: Call) => (await readBody(call)).value;
  const storedResponses = new ResponseStore(clock, defaultLimits);
  const ownerOf = (call: Call) => namedSession(call)?.id ?? "gateway";
  addAgentSessionRoutes(app, { registry, readJson, authorize });
  if (parts.upstream !== undefined) {
    addPassRoutes(app, {
      ...{ service: parts.upstream, responses: storedResponses, logger, readBody, ownerOf },
      sessionOf: (call, conversation) => namedSession(call) ?? registry.ofConversation(conversation),
      hasOwnKey: (call) => !keys.keysRequired && callers.get(call.req.raw)?.session === undefined,
    });
    return app;
  }
  const host = {
    app,
    clock,
    readJson,
    models: (call: Call) => {
      const fixed = namedSession(call);
      fixed?.checkOpen();
      const sessionOf = (conversation: Parameters<SessionRegistry["ofConversation"]>[0]) => {
        const session = fixed ?? registry.ofConversation(conversation);
        for (const param of ignoredBy.get(call.req.raw) ?? []) session.ignored(param);
        return session;
      };
      return sessionModels(models, fixed, sessionOf, startedSeconds);
    },
    toHttpError: (error: unknown) => toHttpError(error) ?? toHttpError(samplingError(error)),
    storedResponses,
    ownerOf,
    onIgnored: (call: Call, { param, message }: { readonly param: string; readonly message: string }) => {
      const ignored = ignoredBy.get(call.req.raw) ?? new Set();
      ignoredBy.set(call.req.raw, ignored.add(param));
      namedSession(call)?.ignored(param);
      const kind = param.replaceAll(/\d+/g, "N");
      if (warned.size >= 1000 || warned.has(kind)) return;
      warned.add(kind);
      logger.warn(`Ignored in requests: ${message}`);
    },
    defaultMaxTokens: DEFAULT_MAX_TOKENS,
  };
  addOpenAiRoutes(host);
  addAnthropicRoutes(host);
  return app;
}

function foreign({ session }: Caller): HttpError {
  const message = `This key is that of session ${session} and reaches no other.`;
  return new HttpError(403, message, { "x-should-retry": "false" });
}

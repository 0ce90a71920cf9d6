import { z } from "zod";
import { HttpError } from "../http-error.js";
import type { App, Call } from "../local/server/http/route.js";
import { SESSION_ID } from "./address.js";
import type { AgentSession } from "./agent-session.js";
import { recordJson } from "./record-json.js";
import type { SessionRegistry } from "./session-registry.js";

const count = z.number().int().nonnegative();
const limit = z.number().int().positive().optional();

const sessionSchema = z.strictObject({
  id: z.string().regex(SESSION_ID, "must be 1 to 100 letters, digits, '_', '-' or '.'").optional(),
  problem: z.unknown().optional(),
  group: count.optional(),
  step: count.optional(),
  tags: z.array(z.string().max(200)).max(100).optional(),
  ownerPid: z.number().int().positive().optional(),
  limits: z
    .strictObject({ maxTokens: limit, maxTokensPerAnswer: limit, maxRequests: limit, maxDurationMs: limit })
    .optional(),
  sampling: z
    .strictObject({ temperature: z.number().min(0).optional(), topP: z.number().min(0).max(1).optional() })
    .optional(),
});
const endSchema = z.strictObject({ reward: z.number().optional() });
const rewardSchema = z.strictObject({ reward: z.number() });

/** The parts of the gateway that the session routes use. */
export interface SessionRoutes {
  readonly registry: SessionRegistry;
  readJson(call: Call): Promise<Readonly<Record<string, unknown>>>;
  /** Throws unless the sender may use this session, or all sessions if none is given. */
  authorize(call: Call, session?: string): Promise<void>;
}

/** Sessions over HTTP: opened, listed, read, rewarded and ended. */
export function addAgentSessionRoutes(app: App, { registry, readJson, authorize }: SessionRoutes): void {
  app.post("/sessions", async (call) => {
    await authorize(call);
    const options = checked(sessionSchema, await readJson(call));
    if (options.id !== undefined && registry.find(options.id) !== undefined)
      throw new HttpError(409, `There is a session ${options.id} already.`, { "x-should-retry": "false" });
    return call.json(addressOf(registry.create(options as Parameters<typeof registry.create>[0])), 201);
  });
  app.get("/sessions", async (call) => {
    await authorize(call);
    const sessions = registry.list().map((session) => {
      const { threads, problem, ...summary } = session.record();
      return {
        ...summary,
        threads: threads.length,
        turns: threads.reduce((sum, { turns }) => sum + turns.length, 0),
      };
    });
    return call.json({ sessions });
  });

  async function idOf(call: Call): Promise<string> {
    const id = call.req.param("id") ?? "";
    await authorize(call, id);
    return id;
  }

  app.get("/sessions/:id", async (call) => {
    const id = await idOf(call);
    const session = registry.find(id);
    if (session === undefined) throw notOpen(id);
    return call.json(recordJson(session.record()));
  });
  app.post("/sessions/:id/reward", async (call) => {
    const id = await idOf(call);
    const { reward } = checked(rewardSchema, await readJson(call));
    await giveReward(id, reward);
    return call.body(null, 204);
  });
  app.post("/sessions/:id/end", async (call) => {
    const id = await idOf(call);
    const { reward } = checked(endSchema, await readJson(call));
    if (reward !== undefined) await giveReward(id, reward);
    const session = registry.find(id);
    if (session !== undefined) return call.json(recordJson(await session.end()));
    const ended = registry.findEnded(id);
    if (ended === undefined && reward === undefined) throw notOpen(id);
    return call.json({ id, ...(ended && { end: ended.end }), ...(reward !== undefined && { reward }) });
  });

  /** A limit, silence or the end of an earlier gateway may have ended a session before its reward is known. */
  async function giveReward(id: string, reward: number): Promise<void> {
    const session = registry.find(id);
    if (session !== undefined) return session.setReward(reward);
    const write = await registry.rewarderOfClosed(id);
    if (write === undefined) throw notOpen(id);
    await write(reward);
  }
}

function notOpen(id: string): HttpError {
  return new HttpError(404, `There is no open session ${id}.`);
}

function addressOf({ id, baseURL, anthropicBaseURL, apiKey }: AgentSession): object {
  return { id, baseURL, anthropicBaseURL, apiKey };
}

function checked<T extends z.ZodType>(schema: T, body: unknown): z.output<T> {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const field = issue!.path.map(String).join(".") || "body";
  throw new HttpError(422, [
    { loc: ["body", ...issue!.path.map(String)], msg: `${field}: ${issue!.message}`, type: "value_error" },
  ]);
}

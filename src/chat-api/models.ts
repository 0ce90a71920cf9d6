import type { Env } from "hono";
import type { ChatHost } from "./chat-host.js";
import { OPENAI_PATHS } from "./openai-errors.js";

/** The models that the sender of a request may use, newest first. */
export function addModelRoutes<E extends Env>({ app, models }: ChatHost<E>): void {
  for (const path of OPENAI_PATHS) {
    app.get(`${path}/models`, async (call) =>
      call.json({ object: "list", data: [...(await models(call).list())] }),
    );
    app.get(`${path}/models/:id{.+}`, async (call) =>
      call.json(await models(call).entry(call.req.param("id"))),
    );
  }
}

import type { Context, Env } from "hono";
import type { ChatHost } from "../chat-host.js";
import { OPENAI_PATHS } from "../openai-errors.js";
import { invalidValue, ParamError, unsupported } from "../param-error.js";
import { History } from "./history.js";

const MAX_LISTED = 100;
const DEFAULT_LISTED = 20;

/** Routes for stored responses. */
export function addStoredRoutes<E extends Env>(host: ChatHost<E>): void {
  const { app, storedResponses: store } = host;

  function find(call: Context<E>, id: string) {
    const stored = store.get(host.ownerOf(call), id);
    return stored ?? fail(id);
  }

  for (const path of OPENAI_PATHS) {
    app.get(`${path}/responses/:id`, (call) => {
      if (call.req.query("stream") === "true")
        throw unsupported("stream", "is not supported for a stored response: it is whole.");
      return call.json(find(call, call.req.param("id")).response);
    });

    app.delete(`${path}/responses/:id`, (call) => {
      const id = call.req.param("id");
      if (!store.delete(host.ownerOf(call), id)) fail(id);
      return call.json({ id, object: "response", deleted: true });
    });

    app.get(`${path}/responses/:id/input_items`, (call) => {
      const { input, previousId } = find(call, call.req.param("id"));
      const before = new History(store, host.ownerOf(call)).itemsUntil(previousId);
      const { limit = String(DEFAULT_LISTED), order = "desc", after } = call.req.query();
      const most = Number(limit);
      if (!Number.isInteger(most) || most < 1 || most > MAX_LISTED)
        throw invalidValue("limit", `limit must be a whole number from 1 to ${MAX_LISTED}.`);
      if (order !== "asc" && order !== "desc") throw invalidValue("order", "order must be asc or desc.");
      const items = order === "asc" ? [...before, ...input] : [...before, ...input].reverse();
      const start = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1;
      const data = items.slice(start, start + most);
      return call.json({
        object: "list",
        data,
        first_id: data[0]?.id ?? null,
        last_id: data.at(-1)?.id ?? null,
        has_more: start + most < items.length,
      });
    });

    app.post(`${path}/responses/:id/cancel`, (call) => {
      find(call, call.req.param("id"));
      throw invalidValue(
        "background",
        "Only a response in the background can be cancelled; this one is whole.",
      );
    });
  }
}

function fail(id: string): never {
  throw new ParamError(404, "response_not_found", `Response with id '${id}' not found.`, "response_id");
}

import type { MiddlewareHandler } from "hono";
import { HttpError } from "./http-error.js";
import type { AppEnv, Call } from "./route.js";

// Connecting to 0.0.0.0 reaches the same machine.
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|0\.0\.0\.0|\[::1\])$/i;

/**
 * Lets browsers use the server. Where keys are needed any page may: without the key it gets nothing. Without
 * keys only pages of this machine and the origins named when the server was started may, or any web page
 * could read and train models on the visitor's machine.
 */
export function crossSite(options: {
  keysRequired: boolean;
  origins: readonly string[];
}): MiddlewareHandler<AppEnv> {
  const isAllowed = (origin: string) =>
    options.keysRequired ||
    options.origins.includes(origin) ||
    options.origins.includes("*") ||
    isLoopbackOrigin(origin);
  return async (context, next) => {
    const origin = context.req.header("origin");
    if (origin !== undefined && !isAllowed(origin)) {
      throw new HttpError(
        403,
        `Pages of ${origin} may not use this server; start it with that origin allowed, or with an API key.`,
      );
    }
    if (context.req.method === "OPTIONS" && origin !== undefined) {
      return new Response(null, {
        status: 204,
        headers: {
          "access-control-allow-origin": origin,
          "access-control-allow-methods": "GET, POST, PUT, DELETE, OPTIONS",
          "access-control-allow-headers": context.req.header("access-control-request-headers") ?? "*",
          // Chrome asks before a public page may reach a private address.
          "access-control-allow-private-network": "true",
          "access-control-max-age": "86400",
          vary: "Origin, Access-Control-Request-Headers",
        },
      });
    }
    await next();
    // Answers are data: no browser is to run them, nor to load them into pages of others.
    context.res.headers.set("x-content-type-options", "nosniff");
    context.res.headers.set("cross-origin-resource-policy", "same-origin");
    if (origin !== undefined) {
      context.res.headers.set("access-control-allow-origin", origin);
      context.res.headers.set("access-control-expose-headers", "*");
      context.res.headers.append("vary", "Origin");
    }
    return undefined;
  };
}

function isLoopbackOrigin(origin: string): boolean {
  try {
    return LOOPBACK.test(new URL(origin).hostname);
  } catch {
    return false;
  }
}

/** Whether a request came under a name of this machine, as any client may say that it does. */
function isAskedLocally(request: Request): boolean {
  return LOOPBACK.test(new URL(request.url).hostname);
}

/** Whether a request came from this machine, and under one of its names: not through a proxy for others. */
export function isOfThisMachine({ env, req }: Pick<Call, "env" | "req">): boolean {
  const address = env?.address?.replace(/^::ffff:/, "") ?? "127.0.0.1";
  return isAskedLocally(req.raw) && (address === "::1" || LOOPBACK.test(address));
}

/**
 * The answer to a request that came over a socket under a name that is not this machine's: a web page can point
 * its own name at 127.0.0.1, and its requests then look like a local page's but for the host.
 */
export function refuseForeignHost(request: Request): Response | undefined {
  if (isAskedLocally(request)) return undefined;
  const detail =
    "This server answers only under the names of this machine (localhost, 127.0.0.1); start it with an API key to use it under others.";
  return Response.json({ detail }, { status: 403 });
}

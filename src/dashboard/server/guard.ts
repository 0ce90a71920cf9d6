import { createHash, timingSafeEqual } from "node:crypto";
import type { MiddlewareHandler } from "hono";
import { refuseForeignHost } from "../../local/server/http/cross-site.js";

/**
 * The page runs only its own script, sends requests only to this server, is shown in no frame, and cannot make HTML of a text:
 * browsers that know trusted types refuse it.
 */
const CONTENT_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data: blob:",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": CONTENT_POLICY,
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store",
};

/** Lets requests of this machine and of the dashboard's own page pass, and says to browsers how the answers are held. */
export function guardPage(): MiddlewareHandler {
  return async (context, next) => {
    const refused = refuseForeignHost(context.req.raw) ?? refuseForeignOrigin(context.req.raw);
    if (refused === undefined) await next();
    else context.res = refused;
    for (const [name, value] of Object.entries(HEADERS)) context.res.headers.set(name, value);
  };
}

function refuseForeignOrigin(request: Request): Response | undefined {
  const origin = request.headers.get("origin");
  if (origin === null || origin === new URL(request.url).origin) return undefined;
  return Response.json({ error: `Pages of ${origin} may not use this dashboard.` }, { status: 403 });
}

/** Accepts only requests with the token of this start, and none from the pages of other sites. */
export function guardData(token: string): MiddlewareHandler {
  const wanted = digest(token);
  return async (context, next) => {
    const site = context.req.header("sec-fetch-site");
    if (site !== undefined && site !== "same-origin" && site !== "none") {
      return context.json({ error: "Pages of other sites may not use this dashboard." }, 403);
    }
    const [, given = ""] = /^Bearer (.+)$/.exec(context.req.header("authorization") ?? "") ?? [];
    if (!timingSafeEqual(digest(given), wanted)) {
      return context.json(
        { error: "The token is missing or of another start: open the address that was printed." },
        401,
      );
    }
    await next();
    return undefined;
  };
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

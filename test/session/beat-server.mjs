/**
 * A session server in a process of its own: it ends every session that stays silent for longer than allowed,
 * as the service does, whatever the event loop of the test is doing. Run with fork(): it sends its port, and
 * what became of the sessions whenever it gets a message.
 */
import { createServer } from "node:http";

const maxSilenceMs = Number(process.argv[2]);
const sessions = new Map();

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const json = JSON.parse(Buffer.concat(chunks).toString() || "{}");
  const [status, body] = answer(`${request.method} ${request.url}`, json);
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
});

function answer(route, json) {
  const now = Date.now();
  if (route === "POST /api/v1/create_session") {
    const id = `session-${sessions.size}`;
    sessions.set(id, { lastSeenMs: now, beatsAtMs: [], expired: false });
    return [200, { session_id: id }];
  }
  if (route === "POST /api/v1/session_heartbeat") {
    const session = sessions.get(json.session_id);
    if (session.expired) return [410, { detail: "expired" }];
    session.lastSeenMs = now;
    session.beatsAtMs.push(now);
    return [200, {}];
  }
  return [404, {}];
}

setInterval(() => {
  const now = Date.now();
  for (const session of sessions.values()) session.expired ||= now - session.lastSeenMs > maxSilenceMs;
}, 100);

process.on("message", () => process.send(Object.fromEntries(sessions)));
process.on("disconnect", () => process.exit());
server.listen(0, "127.0.0.1", () => process.send(server.address().port));

import type { Server as HttpServer } from "node:http";
import type { Socket } from "node:net";

/** Requests that are being answered, by connection. */
const answering = new WeakMap<HttpServer, Map<Socket, number>>();

/** Begins to listen; resolves to the port. */
export function listen(http: HttpServer, port: number, host: string): Promise<number> {
  const connections = new Map<Socket, number>();
  answering.set(http, connections);
  http.on("connection", (socket) => {
    connections.set(socket, 0);
    socket.once("close", () => connections.delete(socket));
  });
  http.on("request", ({ socket }, response) => {
    const add = (change: number) => {
      const count = connections.get(socket);
      if (count !== undefined) connections.set(socket, count + change);
    };
    add(1);
    response.once("close", () => add(-1));
  });
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.listen(port, host, () => {
      http.removeListener("error", reject);
      const address = http.address();
      resolve(typeof address === "object" && address !== null ? address.port : port);
    });
  });
}

/** Stops listening, and ends what is still connected after a last word. */
export function closeHttp(http: HttpServer, lastAnswersMs = 250): Promise<void> {
  return new Promise((resolve) => {
    // A last answer may still be on its way out.
    const lastCall = setTimeout(() => http.closeAllConnections(), lastAnswersMs);
    // Clients keep connections for a next request, which is not coming, and browsers open some that have had none:
    // closeIdleConnections leaves those open.
    const closeUnused = () => {
      for (const [socket, count] of answering.get(http) ?? []) if (count === 0) socket.destroy();
    };
    const unused = setInterval(closeUnused, 25);
    http.close(() => {
      clearTimeout(lastCall);
      clearInterval(unused);
      resolve();
    });
    closeUnused();
  });
}

import type { Server as HttpServer } from "node:http";

/** Begins to listen; resolves to the port. */
export function listen(http: HttpServer, port: number, host: string): Promise<number> {
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
    // Clients keep idle connections open for their next request, which is not coming.
    const idle = setInterval(() => http.closeIdleConnections(), 25);
    http.close(() => {
      clearTimeout(lastCall);
      clearInterval(idle);
      resolve();
    });
    http.closeIdleConnections();
  });
}

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface FakeHub {
  readonly endpoint: string;
  /** Paths asked for, and the credentials they came with. */
  readonly requests: { path: string; authorization: string | undefined }[];
  /** Answer everything with this status; undefined: as a hub does. */
  status: number | undefined;
  close(): Promise<void>;
}

export const COMMIT = "0123456789abcdef0123456789abcdef01234567";

/** A Hugging Face hub with one model, `org/model`, and its files. */
export async function startFakeHub(files: Readonly<Record<string, string>>): Promise<FakeHub> {
  const requests: FakeHub["requests"] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    requests.push({ path, authorization: request.headers.authorization });
    if (hub.status !== undefined) {
      response.writeHead(hub.status).end("no");
      return;
    }
    const file = new RegExp(`^/org/model/resolve/${COMMIT}/(.+)$`).exec(path)?.[1];
    if (/^\/api\/models\/org\/model\/revision\/(main|v1|[0-9a-f]{40})$/.test(path)) {
      const siblings = ["README.md", ...Object.keys(files)].map((rfilename) => ({ rfilename }));
      response.end(JSON.stringify({ sha: COMMIT, siblings }));
    } else if (file !== undefined && files[file] !== undefined) {
      response.end(files[file]);
    } else {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  const hub: FakeHub = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    status: undefined,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return hub;
}

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

interface FakeRepo {
  visibility: string;
  /** Branch -> path -> content. */
  branches: Map<string, Map<string, Buffer>>;
}

/** The part of the Hugging Face Hub's HTTP API that a push uses. */
export interface FakeHub {
  url: string;
  repos: Map<string, FakeRepo>;
  requests: string[];
  commits: { repo: string; branch: string; summary: string; pullRequest: boolean; files: string[] }[];
  /** Authorization headers seen, without repeats. */
  credentials: Set<string | undefined>;
  addRepo(name: string, visibility: string, files?: Record<string, string>): void;
  close(): Promise<void>;
}

const LFS_FROM_BYTES = 10_000;

export async function startFakeHub(): Promise<FakeHub> {
  const uploads = new Map<string, Buffer>();
  const http = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const hub: FakeHub = {
    url,
    repos: new Map(),
    requests: [],
    commits: [],
    credentials: new Set(),
    addRepo(name, visibility, files = {}) {
      const content = Object.entries(files).map(([path, text]) => [path, Buffer.from(text)] as const);
      hub.repos.set(name, { visibility, branches: new Map([["main", new Map(content)]]) });
    },
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
      }),
  };
  return hub;

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url!, url);
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const body = Buffer.concat(pieces);
    hub.requests.push(`${request.method} ${pathname}`);
    const json = (value: unknown, status = 200, headers: Record<string, string> = {}) =>
      void response
        .writeHead(status, { "content-type": "application/json", ...headers })
        .end(JSON.stringify(value));
    const missing = (code: string) => json({ error: code }, 404, { "x-error-code": code });

    if (request.method === "PUT" && pathname.startsWith("/upload/")) {
      uploads.set(pathname.slice("/upload/".length), body);
      return void response.writeHead(200).end();
    }
    hub.credentials.add(request.headers.authorization);
    if (request.headers.authorization !== "Bearer hf_good")
      return json({ error: "Invalid credentials" }, 401);
    if (pathname === "/api/whoami-v2")
      return json({ type: "user", name: "ada", auth: { type: "access_token" } });
    if (pathname === "/api/repos/create") {
      const { organization, name, visibility } = JSON.parse(body.toString());
      hub.addRepo(`${organization}/${name}`, visibility);
      return json({ url: `${url}/${organization}/${name}`, id: "1" });
    }
    const [, name = ""] = /^(?:\/api\/models)?\/([^/]+\/[^/.]+[^/]*?)(?:\.git)?\//.exec(`${pathname}/`) ?? [];
    const repo = hub.repos.get(name);
    if (repo === undefined) return missing("RepoNotFound");
    const rest = pathname.slice(pathname.indexOf(name) + name.length);
    const [verb, branch = "", ...path] = rest.split("/").slice(1).map(decodeURIComponent);
    if (verb === "revision") return json({ _id: "1", id: name, private: repo.visibility === "private" });
    if (verb === "resolve") {
      const files = repo.branches.get(branch);
      if (files === undefined) return missing("RevisionNotFound");
      const content = files.get(path.join("/"));
      if (content === undefined) return missing("EntryNotFound");
      const [, from, to] = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "") ?? [];
      const part = from === undefined ? content : content.subarray(Number(from), Number(to) + 1);
      return void response
        .writeHead(from === undefined ? 200 : 206, {
          etag: '"x"',
          "content-range": `bytes ${from ?? 0}-${Number(from ?? 0) + part.length - 1}/${content.length}`,
        })
        .end(part);
    }
    if (verb === "branch") {
      if (repo.branches.has(branch)) return json({ error: "Reference already exists" }, 409);
      repo.branches.set(branch, new Map(repo.branches.get("main")));
      return json({});
    }
    if (verb === "preupload") {
      const { files } = JSON.parse(body.toString()) as { files: { path: string; size: number }[] };
      const mode = (size: number) => (size >= LFS_FROM_BYTES ? "lfs" : "regular");
      return json({ files: files.map(({ path: file, size }) => ({ path: file, uploadMode: mode(size) })) });
    }
    if (rest.startsWith(".git/info/lfs")) {
      const { objects } = JSON.parse(body.toString()) as { objects: { oid: string; size: number }[] };
      const upload = (oid: string) => ({ upload: { href: `${url}/upload/${oid}` } });
      return json({ transfer: "basic", objects: objects.map(({ oid }) => ({ oid, actions: upload(oid) })) });
    }
    if (verb === "commit") {
      const files = repo.branches.get(branch);
      if (files === undefined) return missing("RevisionNotFound");
      const lines = body
        .toString()
        .split("\n")
        .map((line) => JSON.parse(line));
      const written: string[] = [];
      for (const { key, value } of lines.slice(1)) {
        const content = key === "lfsFile" ? uploads.get(value.oid)! : Buffer.from(value.content, "base64");
        if (key === "lfsFile" && createHash("sha256").update(content).digest("hex") !== value.oid) {
          return json({ error: "The upload is damaged" }, 400);
        }
        files.set(value.path, content);
        written.push(value.path);
      }
      const pullRequest = searchParams.get("create_pr") === "1";
      hub.commits.push({
        repo: name,
        branch,
        summary: lines[0].value.summary,
        pullRequest,
        files: written.sort(),
      });
      return json({
        commitOid: "c0ffee",
        commitUrl: `${url}/${name}/commit/c0ffee`,
        ...(pullRequest ? { pullRequestUrl: `${url}/${name}/discussions/1` } : {}),
      });
    }
    return json({ error: `no route for ${request.method} ${pathname}` }, 500);
  }
}

// The sections of docs/proof.md that `npm run conformance` writes, from what its tests left behind.

const table = (head, rows) =>
  [head, head.map(() => "---"), ...rows]
    .map(
      (cells) =>
        `| ${cells
          .map((cell) =>
            String(cell ?? "-")
              .replaceAll("|", "\\|")
              .replaceAll("\n", " "),
          )
          .join(" | ")} |`,
    )
    .join("\n");
const thousands = (count) => count.toLocaleString("en-US");

/** @param {Record<string, any>} found results by name  @returns {Record<string, string>} markdown by section */
export function conformanceSections(found) {
  const sections = {};
  if (found.wire) sections.wire = wire(found.wire);
  if (found.methods || found["same-script"]) {
    sections["python-client"] = [
      found.methods && methods(found.methods, found["methods-with-tokens"]),
      found["same-script"] && sameScript(found["same-script"]),
    ]
      .filter(Boolean)
      .join("\n\n");
  }
  if (found["other-backends"]) sections["other-backends"] = otherBackend(found["other-backends"]);
  return sections;
}

function wire({ version, seed, total, counts, statements, explained }) {
  const messages = Object.entries(counts).filter(([name]) => name.includes(" "));
  const types = Object.entries(counts).filter(([name]) => !name.includes(" "));
  return `Judge: the published package \`tinker\` ${version}, its own pydantic models and protobuf. ${thousands(total)} generated values (seed ${seed}), none read differently: ${types.length} JSON types, each field of each of them,
in both directions (we write, it reads; it writes, we read and write back, it compares), and the protobuf messages, byte for byte where two writers must agree. All messages, fields, enums and server
settings of the package are compared with ours by introspection, so a new type or field fails the run until it is known; ${statements} names in docs/protocol-differences.md are looked up in its source.
What our clients and routes make of these types is seen in the next section.

${table(
  ["messages", "values"],
  messages.map(([name, count]) => [name, thousands(count)]),
)}

${thousands(types[0]?.[1] ?? 0)} values for each of: ${types.map(([name]) => name).join(", ")}.

Not on their own: ${Object.entries(explained)
    .map(([name, why]) => `${name} (${why})`)
    .join("; ")}.`;
}

const mark = (text) => (text === undefined ? "-" : text === "ok" ? "ok" : text);

function methods(plain, withTokens) {
  const tokens = new Map((withTokens?.rows ?? []).map((row) => [`${row.client}.${row.method}`, row]));
  const rows = plain.rows.map((row) => {
    const other = tokens.get(`${row.client}.${row.method}`) ?? {};
    return [
      `${row.client}.${row.method}`,
      mark(row.sync),
      mark(row.async),
      mark(other.sync),
      mark(other.async),
    ];
  });
  const all = [...plain.rows, ...(withTokens?.rows ?? [])].flatMap((row) => [row.sync, row.async]);
  const green = all.filter((cell) => cell === "ok").length;
  const bad = all.filter((cell) => /FAILED|MISSING/.test(cell ?? "")).length;
  return `Every public method of the clients of \`tinker\` ${plain.version}, found by introspection, called in its synchronous and asynchronous form against the built-in backend with its real engine: ${green} calls right,
${bad} wrong. The backend runs ${plain.configuration}, then ${withTokens?.configuration ?? "no other way"}.

${table(["method", "sync", "async", "sync, second way", "async, second way"], rows)}`;
}

function sameScript({ requests, compared, normalised, differences }) {
  return `One script, twice: through the Python SDK and through ours, against two fresh backends. ${requests} requests each, the same ones in the same order with the same \`seq_id\`s and the same content; ${differences} differences.
Equal to the last bit: ${compared.join(", ")}.

Not compared, because the two may differ: ${normalised.join("; ")}.`;
}

/** @param {{ name: string, parts: [string, string][] }[]} workflows one per version  @returns {string} markdown */
export function workflowTable(workflows) {
  const cell = (result) => ({ ok: "yes", "not in this version": "-" })[result] ?? result;
  const [newest, ...old] = workflows;
  const versions = [...old, newest];
  return table(
    ["", ...versions.map(({ name }) => name)],
    newest.parts.map(([part], row) => [part, ...versions.map(({ parts }) => cell(parts[row][1]))]),
  );
}

function otherBackend(servers) {
  const methods = [...new Set(servers.flatMap(({ rows }) => rows.map((row) => row.method)))];
  const cells = servers.map(({ rows }) => new Map(rows.map((row) => [row.method, row.result])));
  const summary = servers.map(({ name, rows }) => {
    const count = (test) => rows.filter(({ result }) => test.test(result)).length;
    return `${name}: ${count(/^ok/)} of ${rows.length} work, ${count(/^not /)} are not offered, ${count(/^FAILED/)} fail`;
  });
  return `${summary.join("; ")}.

${table(
  ["method of our client", ...servers.map(({ name }) => name)],
  methods.map((method) => [method, ...cells.map((results) => results.get(method))]),
)}`;
}

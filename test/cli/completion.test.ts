import { execFile, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { noTerminal } from "./terminal.js";
import { runWarm as run } from "./warm-command.js";

const execute = promisify(execFile);
const missing = (shell: string) =>
  spawnSync(shell, ["--version"]).status === 0 ? "" : `(skipped: there is no ${shell} on the PATH)`;

let folder: string;
const script = (shell: string) => join(folder, `completion.${shell}`);
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "tinkerts-completion-"));
  mkdirSync(join(folder, "some-folder"));
  writeFileSync(join(folder, "some-file.txt"), "");
  const write = async (shell: string) => {
    const { code, stdout, stderr } = await run(["completion", shell]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    writeFileSync(script(shell), stdout);
  };
  await Promise.all(["bash", "zsh", "fish"].map(write));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** What is typed, with the cursor at its end, and some of what is offered. */
const CASES: readonly [typed: string, offered: readonly string[], notOffered: readonly string[]][] = [
  ["tinkerts ", ["run", "serve", "sample", "completion", "help"], ["--json", "list"]],
  ["tinkerts se", ["serve"], ["sample", "run"]],
  ["tinkerts run ", ["list", "info"], ["run", "serve"]],
  ["tinkerts --format json run li", ["list"], ["info"]],
  ["tinkerts --verbose run l", ["list"], []],
  ["tinkerts run list --", ["--limit", "--columns", "--json", "--help"], ["--port", "list"]],
  ["tinkerts run list --access-scope ", ["owned", "accessible"], ["--limit"]],
  ["tinkerts run list --access-scope o", ["owned"], ["accessible"]],
  ["tinkerts models --format ", ["table", "json", "csv"], ["some-file.txt"]],
  ["tinkerts completion ", ["bash", "zsh", "fish"], ["some-file.txt"]],
  ["tinkerts help ", ["run", "serve"], []],
  ["tinkerts chat --system run ", [], ["list", "info"]],
  ["tinkerts sample --prompt-file some-", ["some-file.txt"], []],
  ["tinkerts serve --data-dir some-", ["some-folder"], ["some-file.txt"]],
];

/** A final slash is the shell's own way of saying that a name is a folder's. */
const names = (text: string) => text.split("\n").map((line) => line.split("\t")[0]!.replace(/\/$/, ""));

function checkOffers(all: readonly string[]): void {
  expect(all).toHaveLength(CASES.length);
  for (const [index, [typed, offered, notOffered]] of CASES.entries()) {
    const found = names(all[index]!);
    expect({ typed, found }).toEqual({ typed, found: expect.arrayContaining([...offered]) });
    expect({ typed, found: found.filter((name) => notOffered.includes(name)) }).toEqual({ typed, found: [] });
  }
}

describe("tinkerts completion", () => {
  it.skipIf(missing("bash"))(`completes in bash ${missing("bash")}`, async () => {
    // As readline calls it: the words up to the cursor, the last of them possibly empty.
    const ask = CASES.map(([typed]) => {
      const words = typed.split(" ").map((word) => `'${word}'`);
      return `COMP_WORDS=(${words.join(" ")}); COMP_CWORD=${words.length - 1}; _tinkerts; printf '%s\\n' "\${COMPREPLY[@]}"; echo ----`;
    });
    const program = [`source ${script("bash")}`, "complete -p tinkerts >/dev/null", ...ask].join("\n");
    const { stdout, stderr } = await execute("bash", ["--norc", "-c", program], { cwd: folder });
    expect(stderr).toBe("");
    checkOffers(stdout.split("----\n").slice(0, -1));
    const equals = `source ${script("bash")}; COMP_WORDS=(tinkerts models --format = js); COMP_CWORD=4; _tinkerts; echo "\${COMPREPLY[@]}"`;
    expect((await execute("bash", ["-c", equals])).stdout).toBe("json\n");
  });

  it.skipIf(missing("fish"))(`completes in fish ${missing("fish")}`, async () => {
    const ask = CASES.map(([typed]) => `complete -C '${typed}'; echo ----`);
    const program = [`source ${script("fish")}`, ...ask].join("\n");
    const env = { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
    const { stdout, stderr } = await execute("fish", ["--no-config", "-c", program], { cwd: folder, env });
    expect(stderr).toBe("");
    checkOffers(stdout.split("----\n").slice(0, -1));
  });

  const noZsh = missing("zsh") || (noTerminal === undefined ? "" : `(skipped: ${noTerminal})`);
  it.skipIf(noZsh)(`completes in zsh ${noZsh}`, async () => {
    const settings = [
      "autoload -Uz compinit && compinit -u -D",
      `source ${script("zsh")}`,
      "PROMPT='ready> '",
      // Offers are shown without their descriptions, and the line once more below them.
      "zstyle ':completion:*' verbose no",
      "setopt no_beep no_always_last_prompt",
    ];
    writeFileSync(join(folder, ".zshrc"), settings.join("\n"));
    const shell = spawn("script", ["-qfec", "stty cols 60 rows 100; exec zsh -i", "/dev/null"], {
      cwd: folder,
      env: { ...process.env, ZDOTDIR: folder, TERM: "dumb", SHELL: "/bin/sh" },
    });
    let text = "";
    shell.stdout.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
    });
    const shown = (part: string) => expect.poll(() => text).toContain(part);
    const offers: string[] = [];
    try {
      await shown("ready> ");
      for (const [typed, offered] of CASES) {
        text = "";
        // Ctrl-D lists what could follow, Ctrl-U empties the line.
        shell.stdin.write(`${typed}\x04`);
        await shown(offered.length === 0 ? typed : `ready> ${typed}`);
        offers.push(/\r\r\n([\s\S]*)ready> /.exec(text)?.[1]?.trim().replaceAll(/\s+/g, "\n") ?? "");
        shell.stdin.write("\x15");
      }
    } finally {
      shell.kill("SIGKILL");
    }
    checkOffers(offers);
  });

  it("asks for the name of the shell", async () => {
    expect(await run(["completion"])).toMatchObject({ code: 2, stdout: "" });
    const { code, stderr } = await run(["completion", "tcsh"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/'tcsh' is invalid .*bash, zsh, fish/);
  });
});

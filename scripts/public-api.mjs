// What the package offers, read from the built declarations: each name of each subpath with its documentation.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { SyntaxKind } from "typescript/unstable/ast";
import { API, SymbolFlags } from "typescript/unstable/sync";

const root = fileURLToPath(new URL("..", import.meta.url));

const KINDS = {
  [SyntaxKind.ClassDeclaration]: "class",
  [SyntaxKind.FunctionDeclaration]: "function",
  [SyntaxKind.InterfaceDeclaration]: "interface",
  [SyntaxKind.TypeAliasDeclaration]: "type",
  [SyntaxKind.VariableDeclaration]: "constant",
};

/**
 * @typedef {{ name: string, kind: "class" | "function" | "interface" | "type" | "constant", documentation: string, file: string, text: string }} PublicName
 * `text` is the declaration as the compiler wrote it, `file` where it stands.
 * @returns {{ subpath: string, contract: string, names: PublicName[] }[]} `contract` is the sentence at the top of the entry
 */
export function readPublicApi() {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const entries = Object.entries(exports)
    .filter(([, target]) => target.types !== undefined)
    .map(([name, { types }]) => ({ subpath: name.replace(".", "tinkerts"), file: join(root, types) }));
  const api = new API({ cwd: root });
  try {
    const snapshot = api.updateSnapshot({ openFiles: entries.map(({ file }) => file) });
    return entries.map(({ subpath, file }) => {
      const { checker, program } = snapshot.getDefaultProjectForFile(file);
      const module = program.getSourceFile(file);
      const names = checker
        .getExportsOfModule(checker.getSymbolAtLocation(module))
        .map((exported) => describe(exported, checker));
      const source = readFileSync(file.replace("/dist/", "/src/").replace(/\.d\.ts$/, ".ts"), "utf8");
      const contract = /^(?:\/\/\/.*\n)?\/\*\*\s*(.*?)\s*\*\//s.exec(source)?.[1] ?? "";
      return { subpath, contract, names: names.sort((a, b) => a.name.localeCompare(b.name, "en")) };
    });
  } finally {
    api.close();
  }
}

function describe(exported, checker) {
  const symbol = exported.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
  const nodes = symbol.declarations.map((declaration) => declaration.resolve());
  return {
    name: exported.name,
    kind: KINDS[nodes[0].kind],
    documentation: symbol.getDocumentationComment(checker).trim(),
    file: nodes[0].getSourceFile().fileName.slice(root.length),
    text: nodes.map((node) => node.getText()).join("\n"),
  };
}

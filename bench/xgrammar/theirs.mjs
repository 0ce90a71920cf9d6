// Compiles one schema with xgrammar: `node theirs.mjs SCHEMA.json XGRAMMAR.cjs VOCABULARY.json`. The last line is JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { report } from "./report.mjs";

const [schemaFile, library, vocabularyFile] = process.argv.slice(2);
const { GrammarCompiler, GrammarMatcher, TokenizerInfo } = createRequire(import.meta.url)(library);
const vocabulary = JSON.parse(readFileSync(vocabularyFile, "utf8"));
const info = await TokenizerInfo.createTokenizerInfo(vocabulary, "byte_level", false, vocabulary.length, [
  vocabulary.length - 1,
]);
const compiler = await GrammarCompiler.createGrammarCompiler(info, false);
const schema = readFileSync(schemaFile, "utf8");
await report(async () => {
  const compiled = await compiler.compileJSONSchema(schema, true);
  const matcher = await GrammarMatcher.createGrammarMatcher(compiled);
  await matcher.getNextTokenBitmask();
});

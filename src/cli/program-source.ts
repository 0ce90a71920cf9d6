import { fileURLToPath } from "node:url";

/** Path of a program that users copy, such as `recipes/addition`; in the repository and in an installed package. */
export function programSource(name: string): string {
  return fileURLToPath(new URL(`src/cli/${name}.ts`, import.meta.resolve("tinkerts/package.json")));
}

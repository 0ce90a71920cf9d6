import { fileURLToPath } from "node:url";

/** A base model: a Hugging Face folder (`config.json`, `*.safetensors`, `tokenizer.json`) and the name clients give it. */
export interface LocalModel {
  readonly name: string;
  readonly path: string;
}

/** The base model that comes with the package. */
export const defaultModel: LocalModel = {
  name: "tinkerts/nano",
  // From src/local and from dist/local alike, the package's root is two folders up.
  path: fileURLToPath(new URL("../../models/nano", import.meta.url)),
};

import { randomUuid } from "../../transport/ids.js";
import type { Refuse } from "../lenience.js";
import { invalidValue, type JsonFields, ParamError } from "../param-error.js";
import type { ResponseItem, ResponseStore } from "./store.js";

/** Most bytes of earlier responses that one request may continue from; all of them are read. */
const MAX_HISTORY_BYTES = 16 * 2 ** 20;

/** The stored responses of one owner. */
export class History {
  readonly #store: ResponseStore;
  readonly #owner: string;

  constructor(store: ResponseStore, owner: string) {
    this.#store = store;
    this.#owner = owner;
  }

  /** All items of the conversation that ends with a response. */
  itemsUntil(responseId: string | undefined): readonly ResponseItem[] {
    const parts: (readonly ResponseItem[])[] = [];
    let bytes = 0;
    for (let id = responseId; id !== undefined; ) {
      bytes += this.#store.bytesOf(this.#owner, id);
      if (bytes > MAX_HISTORY_BYTES) {
        const message = `The conversation before this request takes more than ${MAX_HISTORY_BYTES} bytes.`;
        throw new ParamError(400, "context_length_exceeded", message, "previous_response_id");
      }
      const stored = this.#store.get(this.#owner, id);
      if (stored === undefined) {
        const message = `Previous response with id '${id}' not found.`;
        throw new ParamError(400, "previous_response_not_found", message, "previous_response_id");
      }
      parts.push(stored.output, stored.input);
      id = stored.previousId;
    }
    return parts.reverse().flat();
  }

  /** The items, with references replaced by what they refer to. */
  resolved(items: readonly JsonFields[], refuse: Refuse): readonly JsonFields[] {
    return items.flatMap((item, index) => {
      if (item.type !== "item_reference") return [item];
      const id = String(item["id"]);
      const found = this.#store.item(this.#owner, id);
      if (found === undefined) refuse(invalidValue(`input.${index}`, `Item with id '${id}' not found.`));
      return found === undefined ? [] : [found];
    });
  }
}

/** The items of a request; plain text becomes a user message. */
export function inputItems(input: unknown): readonly unknown[] {
  if (typeof input === "string") return [{ type: "message", role: "user", content: input }];
  if (input === undefined || input === null) return [];
  if (!Array.isArray(input)) throw invalidValue("input", "input must be a text or a list of items.");
  return input;
}

/** The items with ids, as they are stored. */
export function withIds(items: readonly JsonFields[]): readonly ResponseItem[] {
  return items.map((item) => {
    const { id } = item;
    return {
      ...item,
      id: typeof id === "string" && id !== "" ? id : `item_${randomUuid().replaceAll("-", "")}`,
    };
  });
}

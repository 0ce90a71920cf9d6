import type { Column } from "../output/index.js";

/** The owner's own key-value pairs, as one line. */
export function metadataColumn<
  T extends { userMetadata?: Readonly<Record<string, string>> | null },
>(): Column<T> {
  return {
    header: "Metadata",
    name: "userMetadata",
    value: ({ userMetadata }) => {
      const pairs = Object.entries(userMetadata ?? {});
      return pairs.map(([key, value]) => `${key}=${value}`).join(", ");
    },
  };
}

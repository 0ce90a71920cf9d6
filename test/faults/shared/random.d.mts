export function randomFor(...names: readonly unknown[]): () => number;
